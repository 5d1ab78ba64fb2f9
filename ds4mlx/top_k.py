"""Exact top-k with one tie rule: of equal scores the lower index wins, on every device.

Library sorts and partitions do not promise an order among equals, so only the k-th value is taken from them.
"""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
import numpy as np


def top_k_indices(scores: mx.array, count: int) -> mx.array:
    """Indices of the `count` largest entries of each row, ascending: float32 -> int32 [..., count]."""
    chosen = mx.partition(_order(scores, count), count - 1, axis=-1)[..., :count]
    return mx.sort(chosen % scores.shape[-1], axis=-1)


def _order(scores: mx.array, count: int) -> mx.array:
    """Numbers without ties whose `count` smallest are the entries to take: the index of an entry above the
    `count`-th largest, its index + n if it equals that one, 2 n for all others."""
    size = scores.shape[-1]
    least = mx.partition(scores, size - count, axis=-1)[..., size - count : size - count + 1]
    index, later = _positions(size)
    return mx.where(scores > least, index, mx.where(scores == least, later, 2 * size))


@lru_cache(maxsize=4)
def _positions(size: int) -> tuple[mx.array, mx.array]:
    """Indices from 0 and from `size`, int32 [size] each; all layers of a step ask for the same ones."""
    index = np.arange(2 * size, dtype=np.int32)
    return mx.array(index[:size]), mx.array(index[size:])
