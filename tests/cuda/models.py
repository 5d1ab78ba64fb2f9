"""The golden models on the CUDA backend, with every kernel in the simulator, or on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from ds4cuda.engine import CudaEngine, load
from ds4cuda.model import Model
from tests.cuda.on_device import on_device
from tests.support.golden import model_path

if TYPE_CHECKING:
    from shared.model.reference import Activation


def _simulator_missing() -> str | None:
    if on_device():
        return None
    from tests.ksim import clang_missing

    return clang_missing()


needs_simulator = pytest.mark.skipif(_simulator_missing() is not None, reason=str(_simulator_missing()))
CONTEXT = 1024


def open_engine(
    name: str = "tiny-q2", activation: Activation = "kv", *, check: str = "fast", seed: int = 0
) -> tuple[CudaEngine, Any]:
    """A new engine, and the stand-in that it runs on; on a GPU the CuPy, and no checks."""
    cupy = _cupy(check, seed)
    path = model_path(name)
    return load(path, context=CONTEXT, prefill_chunk=64, activation=activation, cupy=cupy), cupy


def _cupy(check: str, seed: int) -> Any:
    if on_device():
        import cupy

        return cupy
    from tests.cuda.cupy_standin import CupyStandin

    return CupyStandin(check=check, seed=seed)


@cache
def engine(name: str = "tiny-q2", activation: Activation = "kv") -> CudaEngine:
    """An engine shared by all tests, never to be closed."""
    return open_engine(name, activation)[0]


class Run:
    """A growing timeline; `feed` takes one step and returns the logits float32 [vocabulary] after it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.state = model.open_state(CONTEXT)

    def feed(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        model, state, count = self._model, self.state, len(tokens)
        model.device.write(model.scratch("tokens", count), np.array(tokens, np.int32))
        model.begin(state.position, count)
        logits = model.forward(state, model.step(state.position, count))
        state.position += count
        return model.device.download(logits)

    def feed_in(self, tokens: Sequence[int], ends: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits [len(ends), vocabulary] of `tokens` in steps that end before these numbers of them."""
        starts = [0, *ends[:-1]]
        return np.stack([self.feed(tokens[a:b]) for a, b in zip(starts, ends, strict=True)])
