"""Memory that a step needs besides weights and the state of its session, told from a model's dimensions.

A prompt's step is evaluated layer by layer. Within a layer the host runs ahead of the GPU, and what an
operation reads or writes is not freed before it is done: so all arrays that one layer makes are counted, as
kernels and MLX's matrix products make them, of the kind of layer that makes most. Plain operations, by which
small models run on the CPU, make more and smaller ones and free each after its last use, which comes to about
as much; MXFP4 experts, for which there is no kernel, take more than is counted.
Must not know: MLX, weights, sessions.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape

_SLICE = 64  # channels of the streams that one threadgroup mixes
_FLOAT = 4


def scratch_bytes(shape: ModelShape, context: int, tokens: int, row_bytes: int) -> int:
    """Of a step of `tokens` tokens within `context`; `row_bytes` of a stored number are 2 or 4."""
    ratios = set(shape.compress_ratios)
    return max(sum(_of_layer(shape, ratio, context, tokens, row_bytes)) for ratio in ratios)


def _of_layer(shape: ModelShape, ratio: int, context: int, tokens: int, row_bytes: int) -> Iterator[int]:
    """Bytes of what a layer makes, in the order in which it is made."""
    yield _FLOAT * tokens * _streams(shape)  # that the layer begins with
    yield from _of_blocks(shape, tokens)
    yield from _of_attention(shape, ratio, tokens, row_bytes)
    if ratio == 4 and context // 4 > shape.index_top_k:
        yield from _of_choice(shape, context, tokens)
    yield from _of_experts(shape, tokens)


def _streams(shape: ModelShape) -> int:
    """Numbers of a token's streams, with the output that will join them and its weights."""
    return (shape.streams + 1) * (shape.embedding_width + shape.streams)


def _of_blocks(shape: ModelShape, tokens: int) -> Iterator[int]:
    """Of attention and of experts each: joined streams and their mix, the input, the output."""
    mix = shape.embedding_width // _SLICE * (shape.mix_width + 1)
    yield 2 * _FLOAT * tokens * (_streams(shape) + mix + shape.embedding_width)


def _of_attention(shape: ModelShape, ratio: int, tokens: int, row_bytes: int) -> Iterator[int]:
    heads, ranks = shape.head_count * shape.head_dim, shape.output_groups * shape.output_rank
    frontier = sum(frontier_widths(shape, ratio))
    scores = shape.index_heads if ratio == 4 else 0
    yield _FLOAT * tokens * (shape.query_rank + shape.head_dim + frontier + scores)  # projected
    yield _FLOAT * tokens * (shape.query_rank + frontier) + row_bytes * tokens * shape.head_dim
    yield _FLOAT * tokens * heads  # queries
    if ratio:
        row = row_bytes * shape.head_dim + (_FLOAT * shape.index_dim if ratio == 4 else 0)
        yield (tokens // ratio + 1) * row
    # Mixed rows, put together group by group as MLX multiplies them, and back.
    yield 2 * _FLOAT * tokens * heads
    yield 2 * _FLOAT * tokens * ranks


def _of_choice(shape: ModelShape, context: int, tokens: int) -> Iterator[int]:
    yield 2 * _FLOAT * tokens * shape.index_heads * shape.index_dim  # queries, before and after they turn
    yield _FLOAT * tokens * (context // 4)  # scores
    yield 2 * _FLOAT * tokens * shape.index_top_k  # chosen, also put together of blocks of queries


def _of_experts(shape: ModelShape, tokens: int) -> Iterator[int]:
    pairs, shared = tokens * shape.experts_used, shape.expert_width * shape.shared_experts
    yield _FLOAT * tokens * shape.expert_count + 2 * _FLOAT * pairs  # scores, choice and shares
    yield (
        _FLOAT * pairs * (shape.expert_width + shape.embedding_width)
    )  # a hidden number takes half without --quality
    # The shared expert: gate and up, as they are and within their clamp, and four steps of SwiGLU.
    yield _FLOAT * tokens * ((2 + 2 + 4) * shared + shape.embedding_width)
