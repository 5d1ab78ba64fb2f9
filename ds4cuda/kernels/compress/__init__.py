"""The compressed rows of the windows that a step of n tokens from position p completes.

Contract, D head dim, r ratio, k = 2 where windows overlap (r = 4) and 1 elsewhere, W frontier width: own
float32 [n, W] (the step's frontier rows), ring [k * r, W] (those of earlier tokens, position q in slot q mod
k * r), norm [D], index_norm [128], frequencies float64 [pairs], position int32 [1] -> rows [capacity, D] and
index_rows float32 [capacity, 128], of which row q // r is written for each window that ends in the step.

A frontier row is [kv | score] of the attention compressor, k * D each, then those of the index compressor,
2 * 128 each. A row is, for each channel alone, the softmax of its tokens' scores times their values; a
channel whose scores are all at or below half of NO_SCORE is 0. Then it is normed, turned as the window's
first position and rounded as every cached row; index rows as every index vector (see index_queries).
`keep` then copies the last frontier rows of a step of several tokens to their slots. Spec: model §4.6 and
§5.3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.attention_rows import ROW_TYPES
from ds4cuda.kernels.kernel import Kernel, Modules, int32
from shared.model.frontier import frontier_slots

KERNEL = Kernel("compress", Path(__file__).parent / "kernel.cu")
KEEP = Kernel("keep_frontier", Path(__file__).parent / "keep.cu")
THREADS = 256


def build(
    modules: Modules,
    *,
    head_dim: int,
    rotary_dim: int,
    ratio: int,
    frontier: int,
    epsilon: float,
    rounds: bool,
) -> Callable[..., None]:
    """-> call(own, ring, norm, index_norm, frequencies, position, rows, index_rows). Of a layer without an
    indexer, any arrays stand for those that it does not have."""
    launch = KERNEL.specialise(
        modules,
        Row=ROW_TYPES[rounds],
        HEAD_DIM=head_dim,
        ROTARY_DIM=rotary_dim,
        RATIO=ratio,
        FRONTIER=frontier,
        EPSILON=epsilon,
        ROUNDS=rounds,
        THREADS=THREADS,
    )
    keep = KEEP.specialise(modules, FRONTIER=frontier, FRONTIER_SLOTS=frontier_slots(ratio))

    def call(
        own: Any, ring: Any, norm: Any, index_norm: Any, frequencies: Any, position: Any, *rows: Any
    ) -> None:
        count = own.shape[0]
        # As many windows as can end in so many tokens, wherever they start: the host need not know.
        grid = (blocks_of_windows(count, ratio), 2 if ratio == 4 else 1)
        arrays = (own, ring, norm, index_norm, frequencies, position, *rows)
        launch(grid, THREADS, *arrays, int32(count))
        if count > 1:
            kept = min(count, frontier_slots(ratio))
            keep((kept,), THREADS, own, position, ring, int32(count - kept))

    return call


def blocks_of_windows(count: int, ratio: int) -> int:
    """The most windows that can end in `count` neighbouring tokens."""
    return (count + ratio - 1) // ratio
