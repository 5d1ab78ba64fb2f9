"""Attention of n tokens from position p.

Contract, H heads, D head dim, r ratio: queries float32 [n, H * D] (not yet normed or turned), ring [slots,
D] (position q in slot q mod slots, the step's own rows among them), compressed [capacity, D], chosen int32
[n, k] where rows are chosen, sinks float32 [H], rotations [n, pairs, 2], position int32 [1] -> mixed
float32 [n, H * D]: each head's query normed, turned and compared with the rows of the last `window`
positions and the (p + t + 1) // r compressed ones, or the chosen ones of these (ascending, -1 after the
last); softmax of the products / sqrt(D) with the sink, which has no value, in its sum; the mixture turned
back. Rows are float32, or binary16 bits uint16. Rows in ascending order in tiles of 32, tiles shared out
among splits. Spec: model §4.5, steps 7 and 8.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.attention_rows import ROW_TYPES
from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

KERNEL = Kernel("attend", Path(__file__).parent / "kernel.cu")
COMBINE = Kernel("combine", Path(__file__).parent / "combine.cu")
_MOST_HEADS = 8  # of a block: its tile of rows serves all of them
_TILE_ROWS = 32
_COMBINE_THREADS = 128
# Blocks of a step of one token wait for memory: rows of one split, and the most splits.
_SPLIT_ROWS = 64
MOST_SPLITS = 32


def splits_for(rows: int, count: int) -> int:
    """Splits of up to `rows` rows in a step of `count` tokens, which are parallel too."""
    return max(1, min(blocks_for(rows, _SPLIT_ROWS), MOST_SPLITS // count))


def build(
    modules: Modules,
    *,
    heads: int,
    head_dim: int,
    rotary_dim: int,
    window: int,
    ratio: int,
    top_k: int,
    epsilon: float,
    rounds: bool,
) -> Callable[..., None]:
    """-> call(queries, ring, compressed, chosen, rotations, position, sinks, partial, maxima, mixed, rows=,
    chooses=): `rows` is the most that a query of the step sees; partial float32 [n * splits, H * D] and
    maxima [n * splits, H, 2] are scratch. `mixed` may be `queries`. Of a layer without them, any arrays stand
    for `compressed` and `chosen`.

    Raises ValueError for head dims that lanes cannot share out evenly.
    """
    if head_dim % 64:
        raise ValueError(f"attention is written for head dims that are multiples of 64, not {head_dim}")
    each = next(count for count in (_MOST_HEADS, 4, 2, 1) if heads % count == 0)
    threads = each * 32

    def made(chooses: bool) -> Any:
        return KERNEL.specialise(
            modules,
            Row=ROW_TYPES[rounds],
            HEADS=heads,
            HEAD_DIM=head_dim,
            ROTARY_DIM=rotary_dim,
            WINDOW=window,
            RATIO=ratio,
            TOP_K=max(top_k, 1),
            CHOOSES=chooses,
            ROOT_HEAD_DIM=float(head_dim**0.5),
            EPSILON=epsilon,
            THREADS=threads,
        )

    variants = {chooses: made(chooses) for chooses in ({False, True} if ratio == 4 else {False})}
    combine = COMBINE.specialise(modules, HEADS=heads, HEAD_DIM=head_dim, ROTARY_DIM=rotary_dim)
    shared = 4 * (_TILE_ROWS * (head_dim + 1) + each * (head_dim + _TILE_ROWS))

    def call(
        queries: Any,
        ring: Any,
        compressed: Any,
        chosen: Any,
        rotations: Any,
        position: Any,
        sinks: Any,
        partial: Any,
        maxima: Any,
        mixed: Any,
        *,
        rows: int,
        chooses: bool,
    ) -> None:
        count = queries.shape[0]
        splits = splits_for(rows, count)
        rows_each = blocks_for(blocks_for(rows, splits), _TILE_ROWS) * _TILE_ROWS
        variants[chooses](
            (heads // each, splits, count),
            threads,
            *(queries, ring, compressed, chosen, rotations, position, partial, maxima),
            int32(ring.shape[0]),
            int32(rows_each),
            shared_bytes=shared,
        )
        combine((heads, count), _COMBINE_THREADS, partial, maxima, sinks, rotations, mixed, int32(splits))

    return call
