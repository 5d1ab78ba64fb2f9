"""How well each compressed row suits each of many tokens, on tensor cores.

Contract: as index_scores, for queries and rows that were rounded to 4 bits: binary16 numbers hold these
exactly, unless the largest of their block is below 2^-20. Of each row 16 heads are summed in order, eight
lanes' pairs of heads, then lanes pairwise. Spec: model §4.7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.index_queries import INDEX_DIM
from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

KERNEL = Kernel("tile_index_scores", Path(__file__).parent / "kernel.cu")
THREADS = 256
ROWS = THREADS  # of a block: 32 of a warp
TOKENS = 16


def build(modules: Modules, *, heads: int, frontier: int, compressor: int) -> Callable[..., None]:
    """-> call(queries, projected, index_rows, position, scores, first=)."""
    launch = KERNEL.specialise(
        modules,
        INDEX_HEADS=heads,
        FRONTIER=frontier,
        COMPRESSOR=compressor,
        SHARE_SCALE=float((INDEX_DIM * heads) ** -0.5),
        THREADS=THREADS,
        TOKENS=TOKENS,
    )

    def call(
        queries: Any, projected: Any, index_rows: Any, position: Any, scores: Any, *, first: int
    ) -> None:
        tokens, rows = scores.shape
        grid = (blocks_for(rows, ROWS), blocks_for(tokens, TOKENS))
        sizes = map(int32, (first, rows, tokens))
        launch(grid, THREADS, queries, projected, index_rows, position, scores, *sizes)

    return call
