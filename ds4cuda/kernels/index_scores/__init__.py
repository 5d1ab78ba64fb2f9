"""How well each compressed row suits each token.

Contract, for the m tokens from the `first` of a step on that starts at position p: queries float32 [n,
heads * 128], projected [n, columns] whose columns from `frontier` on are the heads' weights, index_rows
[capacity, 128], position int32 [1] -> scores float32 [m, rows]: sum over heads of max(0, query . row) *
weight / sqrt(128 * heads), heads in order, minus infinity from row (p + t + 1) // 4 on. Equal rows get
equal scores. Spec: model §4.7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.index_queries import INDEX_DIM
from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

KERNEL = Kernel("index_scores", Path(__file__).parent / "kernel.cu")
THREADS = 128


def build(modules: Modules, *, heads: int, frontier: int, compressor: int) -> Callable[..., None]:
    """-> call(queries, projected, index_rows, position, scores, first=)."""
    launch = KERNEL.specialise(
        modules,
        INDEX_HEADS=heads,
        FRONTIER=frontier,
        COMPRESSOR=compressor,
        SHARE_SCALE=float((INDEX_DIM * heads) ** -0.5),
        THREADS=THREADS,
    )

    def call(
        queries: Any, projected: Any, index_rows: Any, position: Any, scores: Any, *, first: int
    ) -> None:
        tokens, rows = scores.shape
        grid = (blocks_for(rows, THREADS), tokens)
        launch(grid, THREADS, queries, projected, index_rows, position, scores, int32(first), int32(rows))

    return call
