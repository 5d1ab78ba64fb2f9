"""The product of many tokens' 8-bit activations with a Q8_0 matrix, on tensor cores.

Contract: as project8, but that the blocks of 32 codes of a sum are added in order. Spec: model §3.1 and §4.5.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32
from ds4cuda.kernels.quantise import DenseCodes

KERNEL = Kernel("tile_project", Path(__file__).parent / "kernel.cu")
THREADS = 128
ROWS = THREADS // 2  # of a tile: 16 of a warp
TOKENS = 128


def build(modules: Modules) -> Callable[..., None]:
    """-> call(matrix, x, y, groups=1)."""
    launch = KERNEL.specialise(modules, THREADS=THREADS, TOKENS=TOKENS)

    def call(matrix: Any, x: DenseCodes, y: Any, groups: int = 1) -> None:
        count = y.shape[0]
        sizes = (matrix.inputs, matrix.outputs, groups, count)
        grid = (groups * blocks_for(matrix.outputs // groups, ROWS), blocks_for(count, TOKENS))
        launch(grid, THREADS, matrix.weights, matrix.scales, x.codes, x.scales, y, *map(int32, sizes))

    return call
