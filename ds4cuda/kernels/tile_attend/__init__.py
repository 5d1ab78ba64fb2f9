"""Attention of many tokens from position p, on tensor cores.

Contract: as attend, for rows of binary16 numbers; head dims are multiples of 128. Products of a query or a
weight are those of the sum of two binary16 numbers that comes nearest to it, summed as floats. Spec: model
§4.5, steps 7 and 8.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.attend import COMBINE, splits_for
from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

KERNEL = Kernel("tile_attend", Path(__file__).parent / "kernel.cu")
THREADS = 256
HEADS = 16  # of a block
_TILE_ROWS = 32
_COMBINE_THREADS = 128


def takes(head_dim: int, rounds: bool) -> bool:
    """Whether the kernel is written for such rows."""
    return rounds and head_dim % 128 == 0


def shared_bytes(head_dim: int) -> int:
    """Of a tile: rows and queries with room between them, scores, weights, what is kept of each head."""
    numbers = 2 * (_TILE_ROWS + 2 * HEADS) * (head_dim + 8)
    return numbers + 2 * HEADS * (4 * (_TILE_ROWS + 4) + 2 * (_TILE_ROWS + 8)) + 4 * HEADS


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
    """-> call as of attend. Raises ValueError where it does not take such rows."""
    if not takes(head_dim, rounds):
        raise ValueError(f"tiles are of binary16 rows of a multiple of 128 channels, not {head_dim}")
    shared = shared_bytes(head_dim)

    def made(chooses: bool) -> Any:
        return KERNEL.specialise(
            modules,
            HEADS=heads,
            HEAD_DIM=head_dim,
            ROTARY_DIM=rotary_dim,
            WINDOW=window,
            RATIO=ratio,
            TOP_K=max(top_k, 1),
            CHOOSES=chooses,
            ROOT_HEAD_DIM=float(head_dim**0.5),
            EPSILON=epsilon,
            SHARED_BYTES=shared,
        )

    variants = {chooses: made(chooses) for chooses in ({False, True} if ratio == 4 else {False})}
    combine = COMBINE.specialise(modules, HEADS=heads, HEAD_DIM=head_dim, ROTARY_DIM=rotary_dim)

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
            (blocks_for(heads, HEADS), splits, count),
            THREADS,
            *(queries, ring, compressed, chosen, rotations, position, partial, maxima),
            int32(ring.shape[0]),
            int32(rows_each),
            shared_bytes=shared,
        )
        combine((heads, count), _COMBINE_THREADS, partial, maxima, sinks, rotations, mixed, int32(splits))

    return call
