"""What attention keeps of n tokens from position p: query latents, rows, frontier rows.

Contract, D head dim, Q query rank, r ratio, W frontier width: low float32 [n, Q + D], projected [n,
columns] (frontier columns first), query_norm [Q], row_norm [D], positional binary16 bits uint16 [r, W],
rotations [n, pairs, 2], position int32 [1] -> latent float32 [n, Q] = rms(low[:Q]) * query_norm; ring
[slots, D], where position p + t takes slot (p + t) mod slots: rms(low[Q:]) * row_norm, turned, rounded to
E4M3 but for the turned channels and to binary16 (bits, uint16) where rows are rounded, else float32; where
the layer compresses frontier float32 [n, W] = projected + positional[(p + t) mod r], and in a step of one
token the same in the frontier ring's slot. Spec: model §4.5, steps 2 and 3, and §4.6.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, int32
from shared.model.frontier import frontier_slots

KERNEL = Kernel("attention_rows", Path(__file__).parent / "kernel.cu")
THREADS = 256
ROW_TYPES = {True: "unsigned short", False: "float"}


def build(
    modules: Modules,
    *,
    query_rank: int,
    head_dim: int,
    rotary_dim: int,
    ratio: int,
    frontier: int,
    compressor: int,
    epsilon: float,
    rounds: bool,
) -> Callable[..., None]:
    """-> call(low, projected, query_norm, row_norm, positional, rotations, position, latent, ring, frontier,
    frontier_ring). Of a layer that does not compress, any arrays stand for those that it does not have."""
    launch = KERNEL.specialise(
        modules,
        Row=ROW_TYPES[rounds],
        QUERY_RANK=query_rank,
        HEAD_DIM=head_dim,
        ROTARY_DIM=rotary_dim,
        RATIO=max(ratio, 1),
        FRONTIER=frontier,
        FRONTIER_SLOTS=max(frontier_slots(ratio), 1),
        COMPRESSOR=compressor,
        EPSILON=epsilon,
        ROUNDS=rounds,
        THREADS=THREADS,
    )

    def call(low: Any, *arrays: Any) -> None:
        count, ring = low.shape[0], arrays[7]
        numbers = (int32(ring.shape[0]), int32(count))
        launch((3 if ratio else 2, count), THREADS, low, *arrays, *numbers)

    return call
