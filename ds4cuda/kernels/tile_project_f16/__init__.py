"""The product of many tokens' vectors with a binary16 matrix, on tensor cores.

Contract: x float32 [n, inputs], below 65504 in magnitude, a matrix of bits uint16 [outputs, inputs] -> y
float32 [n, outputs]; inputs are a multiple of 8. Each input is the sum of two binary16 numbers that comes
nearest to it, which is within 2^-25 of it or within 2^-22 of its magnitude. 64 inputs are summed at a time,
and then their sums in order. Spec: model §3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

KERNEL = Kernel("tile_project_f16", Path(__file__).parent / "kernel.cu")
THREADS = 256
ROWS = THREADS // 2  # of a tile: 16 of a warp
TOKENS = 64


def build(modules: Modules) -> Callable[..., None]:
    """-> call(matrix, x, y)."""
    launch = KERNEL.specialise(modules, THREADS=THREADS, TOKENS=TOKENS)

    def call(matrix: Any, x: Any, y: Any) -> None:
        count, outputs = y.shape
        grid = (blocks_for(outputs, ROWS), blocks_for(count, TOKENS))
        launch(grid, THREADS, matrix.weights, x, y, *map(int32, (matrix.inputs, outputs, count)))

    return call
