"""Attention of a step in array operations, block of queries after block: what the kernels must agree with.

Must not know: weights, sessions.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from ds4mlx.product import multiply
from ds4mlx.state import read_ring
from ds4mlx.step import QueryBlock, Step, rotate

# Above this many compressed rows for each chosen one, chosen rows are fetched instead of masked.
_DENSE_ROWS_PER_CHOSEN = 8


def fallback(
    queries: mx.array,
    own: mx.array,
    ring: mx.array,
    compressed: mx.array | None,
    chosen: mx.array | None,
    sinks: mx.array,
    rotation: mx.array,
    numbers: mx.array,
    step: Step,
    *,
    heads: int,
    head_dim: int,
    ratio: int,
    epsilon: float,
) -> mx.array:
    """As the package describes it, in float32 throughout."""
    turns = rotation.view(mx.complex64)[:, None, :]
    normed = mx.fast.rms_norm(queries.reshape(-1, heads, head_dim), _scale(head_dim), epsilon)
    scaled = rotate(normed, turns)
    raw = _raw_rows(own, ring, step)
    outputs = []
    for block in step.blocks(ratio):
        first = block.first_key - step.first_raw
        outputs.append(
            _attend_block(
                scaled[block.first : block.end],
                raw[first : first + block.key_count],
                None if compressed is None else compressed[: block.compressed],
                None if chosen is None else chosen[block.first : block.end],
                sinks,
                block,
            )
        )
    mixed = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=0)
    return rotate(mixed, mx.conjugate(turns)).reshape(step.count, -1)


@cache
def _scale(head_dim: int) -> mx.array:
    return mx.array([head_dim**-0.5] * head_dim)


def _raw_rows(own: mx.array, ring: mx.array, step: Step) -> mx.array:
    """Rows of all positions that the step's queries see, float32."""
    earlier = step.start - step.first_raw
    rows = own if not earlier else mx.concatenate([read_ring(ring, step.first_raw, earlier), own], axis=0)
    return rows.astype(mx.float32)


def _attend_block(
    queries: mx.array,
    raw: mx.array,
    compressed: mx.array | None,
    chosen: mx.array | None,
    sinks: mx.array,
    block: QueryBlock,
) -> mx.array:
    """Scaled queries [b, heads, D] over raw rows [k, D] and compressed rows [c, D] -> [b, heads, D]."""
    if compressed is None or block.compressed == 0:
        return _softmax_rows(queries, raw, block.raw_mask, sinks)
    mask = block.compressed_mask
    if chosen is not None:
        every_chosen_seen = mask is None and block.compressed >= chosen.shape[1]
        if every_chosen_seen and queries.shape[0] == 1:
            compressed = mx.take(compressed, chosen[0], axis=0)
        elif every_chosen_seen and block.compressed > _DENSE_ROWS_PER_CHOSEN * chosen.shape[1]:
            return _attend_fetched(queries, raw, mx.take(compressed, chosen, axis=0), sinks, block)
        else:
            mask = _chosen_mask(chosen, block)
    rows = mx.concatenate([raw, compressed.astype(mx.float32)], axis=0)
    return _softmax_rows(queries, rows, _joined(block.raw_mask, raw, mask, compressed, queries), sinks)


def _chosen_mask(chosen: mx.array, block: QueryBlock) -> mx.array:
    """bool [queries, rows]: the chosen rows that are visible. Rows beyond the block's all share one column,
    which is cut off."""
    columns = mx.minimum(chosen, block.compressed)
    mask = mx.zeros((chosen.shape[0], block.compressed + 1), mx.bool_)
    mask = mx.put_along_axis(mask, columns, mx.array([True]), axis=1)[:, :-1]
    return mask if block.compressed_mask is None else mask & block.compressed_mask


def _joined(
    first: mx.array | None,
    first_rows: mx.array,
    second: mx.array | None,
    second_rows: mx.array,
    queries: mx.array,
) -> mx.array | None:
    """Two masks side by side; None if nothing is masked."""
    if first is None and second is None:
        return None
    parts = [
        mx.ones((queries.shape[0], rows.shape[0]), mx.bool_) if mask is None else mask
        for mask, rows in ((first, first_rows), (second, second_rows))
    ]
    return mx.concatenate(parts, axis=1)


def _softmax_rows(queries: mx.array, rows: mx.array, mask: mx.array | None, sinks: mx.array) -> mx.array:
    count, heads, width = queries.shape
    scores = multiply(queries.reshape(-1, width), rows.T, count).reshape(count, heads, -1)
    if mask is not None:
        scores = mx.where(mask[:, None, :], scores, -mx.inf)
    weights = _with_sinks(scores, sinks)
    return multiply(weights.reshape(count * heads, -1), rows, count).reshape(count, heads, width)


def _attend_fetched(
    queries: mx.array, raw: mx.array, fetched: mx.array, sinks: mx.array, block: QueryBlock
) -> mx.array:
    """Each query with its own compressed rows: fetched [b, k, D]."""
    count, heads, width = queries.shape
    raw_scores = multiply(queries.reshape(-1, width), raw.T, count).reshape(count, heads, -1)
    if block.raw_mask is not None:
        raw_scores = mx.where(block.raw_mask[:, None, :], raw_scores, -mx.inf)
    fetched = fetched.astype(mx.float32)
    scores = mx.concatenate([raw_scores, queries @ fetched.swapaxes(1, 2)], axis=-1)
    weights = _with_sinks(scores, sinks)
    of_raw = multiply(weights[..., : raw.shape[0]].reshape(count * heads, -1), raw, count)
    return of_raw.reshape(count, heads, width) + weights[..., raw.shape[0] :] @ fetched


def _with_sinks(scores: mx.array, sinks: mx.array) -> mx.array:
    """Softmax over the last axis of scores [b, heads, rows] and one sink a head, without the sinks' part."""
    column = mx.broadcast_to(sinks[None, :, None], (*scores.shape[:2], 1))
    return mx.softmax(mx.concatenate([scores, column], axis=-1), axis=-1)[..., :-1]
