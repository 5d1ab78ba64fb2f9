"""The importance of the columns of expert matrices, summed up while a model reads. Spec: model §7.

Must not know: engines, files.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from shared.errors import Ds4Error
from shared.expert_watch import Array, Ids
from shared.model.shape import ModelShape

# Tokens whose numbers are held in float64 at a time.
_BLOCK = 1024


class NotFinite(Ds4Error):
    """What went through an expert is beyond the numbers that its engine computes with."""


class ImportanceSums:
    """An `ExpertWatch` that sums squares, in float64, over the tokens that chose an expert: of the normalised
    inputs for `gate` and `up`, of the weighted SwiGLU rows for `down`. A token counts once for each slot.

    Raises NotFinite as soon as there is a number without a square: reading on for hours would save nothing.
    `batches` is how often it was called. Holds 8 * layers * experts * (width + expert width) bytes.
    """

    def __init__(self, shape: ModelShape) -> None:
        each = (shape.layer_count, shape.expert_count)
        self._inputs = np.zeros((*each, shape.embedding_width))
        self._hidden = np.zeros((*each, shape.expert_width))
        self._counts = np.zeros(each, np.int64)
        self.batches = 0

    def __call__(self, layer: int, inputs: Array, chosen: Ids, hidden: Array) -> None:
        self.batches += 1
        for first in range(0, len(inputs), _BLOCK):
            block = slice(first, first + _BLOCK)
            self._add(layer, inputs[block], chosen[block], hidden[block])

    @property
    def unseen(self) -> int:
        """Experts of all layers that no token has chosen."""
        return int((self._counts == 0).sum())

    @property
    def names(self) -> list[str]:
        """Tensors in the order of `entries`."""
        layers = range(len(self._counts))
        return [f"blk.{layer}.ffn_{part}_exps.weight" for layer in layers for part in ("gate", "up", "down")]

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The names and the numbers of values of `entries`."""
        inputs, hidden = self._inputs[0].size, self._hidden[0].size
        for at, name in enumerate(self.names):
            yield name, hidden if at % 3 == 2 else inputs

    def entries(self) -> Iterator[tuple[str, Array]]:
        """Each tensor's name and its mean squares float32 [experts * columns]; 1 for an unseen expert."""
        names = iter(self.names)
        for counts, inputs, hidden in zip(self._counts, self._inputs, self._hidden, strict=True):
            gate = _means(inputs, counts)
            yield next(names), gate
            yield next(names), gate
            yield next(names), _means(hidden, counts)

    def _add(self, layer: int, inputs: Array, chosen: Ids, hidden: Array) -> None:
        used = chosen.shape[1]
        experts, rows = chosen.reshape(-1), hidden.reshape(chosen.size, -1)
        order = np.argsort(experts, kind="stable")
        present, starts = np.unique(experts[order], return_index=True)
        for expert, pairs in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            wide, narrow = _squares(inputs[pairs // used]), _squares(rows[pairs])
            if not (np.isfinite(wide).all() and np.isfinite(narrow).all()):
                raise NotFinite(
                    f"stopped: numbers that are not finite went through expert {expert} of layer {layer}, "
                    "and nothing was written"
                )
            self._inputs[layer, expert] += wide
            self._hidden[layer, expert] += narrow
            self._counts[layer, expert] += len(pairs)


def _squares(rows: Array) -> npt.NDArray[np.float64]:
    """Of each column the sum over rows."""
    wide = rows.astype(np.float64)
    sums: npt.NDArray[np.float64] = np.einsum("ij,ij->j", wide, wide)
    return sums


def _means(sums: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Array:
    seen = counts[:, None] > 0
    means = np.divide(sums, counts[:, None], out=np.ones_like(sums), where=seen)
    with np.errstate(over="ignore"):
        return means.reshape(-1).astype(np.float32)
