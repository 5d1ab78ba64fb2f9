"""When two states count as equal: bit by bit, within float32 noise, or within one rounding step.

Works on the payload's layer states. A rounded value may stand one step away from its twin, since noise far
below a step decides which way a value at the border between two steps goes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shared.kv.payload import LayerState

Array = npt.NDArray[np.float32]

FIELDS = (
    "raw",
    "compressed",
    "frontier_kv",
    "frontier_score",
    "index_rows",
    "index_frontier_kv",
    "index_frontier_score",
)
FLOAT_NOISE = 2e-5
LARGEST_SHARE = 1e-3  # of rounded values that may be a step away


def assert_bit_equal(ours: Sequence[LayerState], theirs: Sequence[LayerState]) -> None:
    for layer, field, a, b in _pairs(ours, theirs):
        assert np.array_equal(a, b), (layer, field)


def assert_float_equal(ours: Sequence[LayerState], theirs: Sequence[LayerState]) -> None:
    for layer, field, a, b in _pairs(ours, theirs):
        assert np.abs(a - b).max(initial=0) <= FLOAT_NOISE, (layer, field)


def assert_one_step(ours: Sequence[LayerState], theirs: Sequence[LayerState], rotary_dim: int) -> None:
    """Rounded rows equal but for at most 0.1 % that are one step away; frontiers, never rounded, to noise."""
    differing = total = 0
    for layer, field, a, b in _pairs(ours, theirs):
        if "frontier" in field:
            assert np.abs(a - b).max(initial=0) <= FLOAT_NOISE, (layer, field)
            continue
        step = _index_step(a, b) if field == "index_rows" else _row_step(a, b, rotary_dim)
        # Close to zero a step of binary16 is finer than the noise itself.
        assert (np.abs(a - b) <= step + FLOAT_NOISE / 4).all(), (layer, field)
        differing += int((a != b).sum())
        total += a.size
    assert differing <= max(LARGEST_SHARE * total, 1), (differing, total)


def _pairs(ours: Sequence[LayerState], theirs: Sequence[LayerState]) -> list[tuple[int, str, Array, Array]]:
    pairs = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for field in FIELDS:
            x, y = getattr(a, field), getattr(b, field)
            assert (x is None) == (y is None)
            if x is not None:
                assert x.shape == y.shape, (number, field)
                pairs.append((number, field, x, y))
    return pairs


def _row_step(a: Array, b: Array, rotary_dim: int) -> Array:
    """E4M3 before the rotary channels (least step 2^-9 of a scale of at most amax / 224), F16 there."""
    largest = np.maximum(np.abs(a), np.abs(b))
    step = np.maximum(largest / 8, largest.max(axis=-1, keepdims=True, initial=0) / 224 * 2.0**-9)
    step[..., -rotary_dim:] = np.maximum(largest[..., -rotary_dim:] * 2.0**-10, 2.0**-24)
    return step


def _index_step(a: Array, b: Array) -> Array:
    """E2M1: the wide steps are half the larger value, the narrow ones half the scale, at most amax / 3."""
    largest = np.maximum(np.abs(a), np.abs(b))
    blocks = largest.reshape(len(largest), largest.shape[1] // 32, 32)
    narrow = np.repeat(blocks.max(axis=-1, initial=0) / 6, 32, axis=-1)
    return np.maximum(largest / 2, narrow)
