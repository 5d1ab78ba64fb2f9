"""Attention of blocks of queries over raw and compressed rows, and the indexer's choice among the latter.

One row is key and value of all heads. Must not know: weights, caches' buffers, sessions.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ds4mlx.product import multiply
from ds4mlx.step import QueryBlock
from ds4mlx.top_k import top_k_indices, top_k_mask

# Above this many compressed rows for each selected one, selected rows are fetched instead of masked.
_DENSE_ROWS_PER_SELECTED = 8


@dataclass(frozen=True, slots=True)
class Selection:
    """Compressed rows that a block's queries attend to: either a mask over all of them, bool [queries, rows],
    or the rows' numbers, int32 [queries, top k], for queries that all see at least that many."""

    mask: mx.array | None = None
    rows: mx.array | None = None


def index_scores(queries: mx.array, head_weights: mx.array, index_rows: mx.array) -> mx.array:
    """Score of each row for each query: queries [b, heads, I], weights [b, heads], rows [c, I] -> [b, c].

    Without the model's factor 1 / sqrt(heads * I), which changes no order. Spec: model §4.7.
    """
    count, heads, width = queries.shape
    products = multiply(queries.reshape(-1, width), index_rows.T, count)
    positive = mx.maximum(products, 0.0).reshape(count, heads, -1)
    return (head_weights[:, None, :] @ positive)[:, 0]


def select(scores: mx.array, block: QueryBlock, top_k: int) -> Selection:
    """The `top_k` best visible rows of each query (all, where it sees no more); lower rows win ties."""
    visible = block.compressed_mask
    if visible is None and (scores.shape[0] == 1 or block.compressed > _DENSE_ROWS_PER_SELECTED * top_k):
        return Selection(rows=top_k_indices(scores, top_k))
    if visible is None:
        return Selection(mask=top_k_mask(scores, top_k))
    return Selection(mask=top_k_mask(mx.where(visible, scores, -mx.inf), top_k) & visible)


def attend(
    queries: mx.array,
    raw: mx.array,
    compressed: mx.array | None,
    sinks: mx.array,
    block: QueryBlock,
    selection: Selection | None,
) -> mx.array:
    """Scaled queries [b, heads, D] over raw rows [k, D] and compressed rows [c, D] -> [b, heads, D].

    A head's sink takes part in the softmax without a row. Spec: model §4.5, steps 6 and 7.
    """
    if compressed is None or block.compressed == 0:
        return _softmax_rows(queries, raw, block.raw_mask, sinks)
    chosen = None if selection is None else selection.rows
    if chosen is not None and queries.shape[0] > 1:
        return _attend_fetched(queries, raw, mx.take(compressed, chosen, axis=0), sinks, block)
    mask = block.compressed_mask
    if chosen is not None:
        compressed = mx.take(compressed, chosen[0], axis=0)
    elif selection is not None:
        mask = selection.mask
    rows = mx.concatenate([raw, compressed.astype(mx.float32)], axis=0)
    return _softmax_rows(queries, rows, _joined(block.raw_mask, raw, mask, compressed, queries), sinks)


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
