"""The hidden vectors of the shared expert, from 8-bit activations.

Contract: codes int8 [n, inputs] and scales float32 [n, inputs / 32] (see quantise), a Q8_0 matrix [2 *
width, inputs] (the gate's rows, then those of `up`) -> hidden float32 [n, width] = silu(gate) * up, the gate
clamped above, `up` on both sides. Sums as in project8. Spec: model §3.1 and §4.8.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32
from ds4cuda.kernels.project8 import ROWS, THREADS, WARPS, specialise_for_counts
from ds4cuda.kernels.quantise import DenseCodes

KERNEL = Kernel("project_swiglu8", Path(__file__).parent / "kernel.cu")


def build(modules: Modules, *, clamp: float) -> Callable[..., None]:
    """-> call(matrix, x, hidden)."""
    of = specialise_for_counts(KERNEL, modules, CLAMP=float(clamp))

    def call(matrix: Any, x: DenseCodes, hidden: Any) -> None:
        count, width = hidden.shape
        launch, tokens = of(count)
        grid = (blocks_for(width, WARPS * ROWS), blocks_for(count, tokens))
        sizes = (matrix.inputs, width, count)
        launch(grid, THREADS, matrix.weights, matrix.scales, x.codes, x.scales, hidden, *map(int32, sizes))

    return call
