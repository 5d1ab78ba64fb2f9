"""A float matrix to the blocks of any type that a model file may hold, weighted by what each column matters.

The one entrance to the quantisers. Works through the matrix in pieces that fit a processor's cache. Must not
know: files, tensor names, models.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.quantise.iq2_xxs import iq2_xxs
from shared.quantise.q2_k import q2_k
from shared.quantise.q4_k import q4_k
from shared.quantise.q8_0 import q8_0

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

# Raised whenever a quantiser finds other numbers for equal weights: an unfinished file of another edition is
# not gone on with.
EDITION = 1

_SUPER_BLOCK = 256
_LEAST_WEIGHT = np.float32(1e-6)  # of the largest: a column that never mattered must not become nonsense
_WEIGHTED: dict[TensorType, tuple[Callable[[Array, Array], Bytes], int]] = {  # and blocks of a piece
    TensorType.Q2_K: (q2_k, 256),
    TensorType.Q4_K: (q4_k, 256),
    TensorType.IQ2_XXS: (iq2_xxs, 16),
}
WEIGHTED_TYPES = tuple(_WEIGHTED)


def quantise(
    type: TensorType,
    values: Array,
    importance: Array | None = None,
    *,
    check: Callable[[], None] = lambda: None,
) -> Bytes:
    """The blocks of `values` [rows, columns], uint8 [rows, bytes of a row].

    `importance` [columns], finite and not negative, says how much an error in each column matters; without
    one all matter alike, but for IQ2_XXS, where a column's sum of squares takes its place. Q8_0, F16 and F32
    do not use it. `check` is called between pieces: what it raises ends the work. Raises ValueError for a
    type that is not written, for values that are not finite, or too large for F16. Spec: model §3, §8.
    """
    rows, columns = values.shape
    if not np.isfinite(values).all():
        raise ValueError("holds values that are not finite")
    if columns % block_elements(type):
        raise ValueError(f"has rows of {columns} elements, not a multiple of {block_elements(type)}")
    if type is TensorType.F32:
        return values.astype("<f4").view(np.uint8)
    if type is TensorType.F16:
        return _halves(values)
    if type is TensorType.Q8_0:
        return q8_0(values.reshape(-1, block_elements(type))).reshape(rows, -1)
    if type not in _WEIGHTED:
        raise ValueError(f"cannot be written as {type.name}")
    if importance is None and type is TensorType.IQ2_XXS:
        importance = column_energy(values)
    return _weighted(type, values, _weights(importance, columns), check)


def column_energy(values: Array) -> Array:
    """The sum of squares of every column of [rows, columns]."""
    total = np.zeros(values.shape[1], np.float64)
    for row in values:
        total += np.square(row, dtype=np.float64)
    return (
        total.astype(np.float32) if total.max(initial=0) < 1e38 else (total / total.max()).astype(np.float32)
    )


def _weights(importance: Array | None, columns: int) -> Array:
    """Positive weights of at most 1."""
    if importance is None:
        return np.ones(columns, np.float32)
    if importance.shape != (columns,):
        raise ValueError(f"has {columns} columns but {importance.size} importances")
    if not np.isfinite(importance).all() or (importance < 0).any():
        raise ValueError("has importances that are negative or not finite")
    largest = importance.max()
    if largest == 0:
        return np.ones(columns, np.float32)
    scaled = (importance.astype(np.float64) / np.float64(largest)).astype(np.float32)
    return np.maximum(scaled, _LEAST_WEIGHT)


def _weighted(type: TensorType, values: Array, weights: Array, check: Callable[[], None]) -> Bytes:
    blocks_of, piece = _WEIGHTED[type]
    across = len(weights) // _SUPER_BLOCK
    blocks = values.reshape(-1, _SUPER_BLOCK)
    weight_blocks = weights.reshape(across, _SUPER_BLOCK)
    result = np.empty((len(blocks), block_bytes(type)), np.uint8)
    with np.errstate(over="ignore", under="ignore"):  # steps beyond binary16 are made the largest
        for start in range(0, len(blocks), piece):
            check()
            stop = min(start + piece, len(blocks))
            column = np.arange(start, stop) % across
            result[start:stop] = blocks_of(blocks[start:stop], weight_blocks[column])
    return result.reshape(len(values), -1)


def _halves(values: Array) -> Bytes:
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        raise ValueError("holds values beyond 65504, the largest of F16")
    return halves.view(np.uint8)
