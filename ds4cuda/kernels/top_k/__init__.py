"""The compressed rows that each token attends to.

Contract, for the m tokens from the `first` of a step on that starts at position p: scores float32 [m,
rows], position int32 [1] -> chosen int32 [n, k], of which m rows are written: the numbers, ascending, of
the k largest scores among the first (p + t + 1) // 4, the lower number on ties; both zeros are equal.
Where there are no more than k such rows: all, then -1. Exact. Spec: model §4.7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, int32

KERNEL = Kernel("top_k", Path(__file__).parent / "kernel.cu")
THREADS = 256


def build(modules: Modules, *, count: int) -> Callable[..., None]:
    """-> call(scores, position, chosen, first=)."""
    launch = KERNEL.specialise(modules, TOP_K=count, THREADS=THREADS)

    def call(scores: Any, position: Any, chosen: Any, *, first: int) -> None:
        tokens, rows = scores.shape
        launch((tokens,), THREADS, scores, position, chosen, int32(first), int32(rows))

    return call
