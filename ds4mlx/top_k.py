"""Exact top-k with one tie rule: of equal scores the lower index wins, on every device.

Library sorts and partitions do not promise an order among equals, so only the k-th value is taken from them.
"""

from __future__ import annotations

import mlx.core as mx


def top_k_mask(scores: mx.array, count: int) -> mx.array:
    """True at the `count` largest entries of each row: float32 [..., n] -> bool [..., n], `count` <= n."""
    least = -mx.partition(-scores, count - 1, axis=-1)[..., count - 1 : count]
    above, tied = scores > least, scores == least
    room = count - above.sum(axis=-1, keepdims=True)
    return above | (tied & (mx.cumsum(tied.astype(mx.int32), axis=-1) <= room))


def top_k_indices(scores: mx.array, count: int) -> mx.array:
    """Indices of the `count` largest entries of each row, ascending: int32 [..., count]."""
    index = mx.arange(scores.shape[-1], dtype=mx.int32)
    chosen = mx.where(top_k_mask(scores, count), index, scores.shape[-1])
    return mx.sort(chosen, axis=-1)[..., :count]
