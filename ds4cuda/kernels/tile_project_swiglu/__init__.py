"""The hidden vectors of the shared expert for many tokens, from 8-bit activations on tensor cores.

Contract: codes int8 [n, inputs] and scales float32 [n, inputs / 32] (see quantise), a Q8_0 matrix [2 *
width, inputs] (the gate's rows, then those of `up`) -> hidden float32 [n, width] = silu(gate) * up, the gate
clamped above, `up` on both sides. Sums as in tile_project. Spec: model §3.1 and §4.8.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32
from ds4cuda.kernels.quantise import DenseCodes
from ds4cuda.kernels.tile_project import ROWS, THREADS, TOKENS

KERNEL = Kernel("tile_project_swiglu", Path(__file__).parent / "kernel.cu")


def build(modules: Modules, *, clamp: float) -> Callable[..., None]:
    """-> call(matrix, x, hidden)."""
    launch = KERNEL.specialise(modules, CLAMP=float(clamp), THREADS=THREADS, TOKENS=TOKENS)

    def call(matrix: Any, x: DenseCodes, hidden: Any) -> None:
        count, width = hidden.shape
        grid = (blocks_for(width, ROWS // 2), blocks_for(count, TOKENS))
        sizes = (matrix.inputs, width, count)
        launch(grid, THREADS, matrix.weights, matrix.scales, x.codes, x.scales, hidden, *map(int32, sizes))

    return call
