"""The golden models on the MLX backend, loaded once, and ways to run them position by position."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.engine import MlxEngine, load  # noqa: E402
from tests.support.golden import model_path  # noqa: E402

if TYPE_CHECKING:
    from ds4mlx.model import Activation, Model


@cache
def engine(
    name: str = "tiny-q2",
    activation: Activation = "kv",
    prefill_chunk: int | None = None,
    dense_index_rows: int = 0,
) -> MlxEngine:
    """An engine of a golden model; shared by all tests, never to be closed."""
    return load(
        model_path(name),
        activation=activation,
        prefill_chunk=prefill_chunk,
        dense_index_rows=dense_index_rows,
    )


def model(name: str = "tiny-q2", activation: Activation = "kv") -> Model:
    return engine(name, activation)._model


class Run:
    """A growing timeline; `feed` returns the logits at every fed position, float32 [n, vocabulary]."""

    def __init__(self, model: Model, context: int = 2048) -> None:
        self._model = model
        self.state = model.open_state(context)

    def feed(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        last: list = []
        ids = mx.array(list(tokens), mx.int32)
        result = self._model.forward(
            ids, self.state, lambda _, streams, rows: last.append(streams) or mx.eval(streams.arrays(), rows)
        )
        self.state.advance(result)
        logits = self._model.output_head(last[-1])
        mx.eval(logits, self.state.arrays())
        return np.array(logits)

    def feed_in(self, tokens: Sequence[int], chunk: int) -> npt.NDArray[np.float32]:
        return np.concatenate([self.feed(tokens[at : at + chunk]) for at in range(0, len(tokens), chunk)])
