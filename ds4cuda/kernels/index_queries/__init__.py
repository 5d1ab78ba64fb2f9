"""The indexer's queries, ready to be compared.

Contract: queries float32 [n, heads * 128], rotations [n, pairs, 2] -> queries in place: each head's last
channels turned and, where vectors are rounded, the orthonormal Hadamard transform of all 128 rounded to
E2M1 in blocks of 32. Spec: model §4.1 and §4.7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

KERNEL = Kernel("index_queries", Path(__file__).parent / "kernel.cu")
INDEX_DIM = 128
THREADS = 128


def build(modules: Modules, *, heads: int, rotary_dim: int, rounds: bool) -> Callable[..., None]:
    """-> call(queries, rotations)."""
    launch = KERNEL.specialise(
        modules, INDEX_HEADS=heads, ROTARY_DIM=rotary_dim, ROUNDS=rounds, THREADS=THREADS
    )

    def call(queries: Any, rotations: Any) -> None:
        vectors = queries.shape[0] * heads
        launch((blocks_for(vectors, THREADS // 32),), THREADS, queries, rotations, int32(vectors))

    return call
