"""The hidden vectors of the shared expert.

Contract: x float32 [n, inputs], matrix [2 * width, inputs] (the gate's rows, then those of `up`) -> hidden
float32 [n, width] = silu(gate) * up, the gate clamped above, `up` on both sides. Sums as in project. Spec:
model §4.8.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32
from ds4cuda.kernels.project import ROWS, THREADS, WARPS, specialise_for_counts

KERNEL = Kernel("project_swiglu", Path(__file__).parent / "kernel.cu")


def build(modules: Modules, *, storage: str, clamp: float) -> Callable[..., None]:
    """-> call(matrix, x, hidden)."""
    of = specialise_for_counts(KERNEL, modules, storage, CLAMP=float(clamp))

    def call(matrix: Any, x: Any, hidden: Any) -> None:
        count, width = hidden.shape
        launch, tokens = of(count)
        grid = (blocks_for(width, WARPS * ROWS), blocks_for(count, tokens))
        sizes = (matrix.inputs, width, count)
        launch(grid, THREADS, matrix.weights, matrix.scales, x, hidden, *map(int32, sizes))

    return call
