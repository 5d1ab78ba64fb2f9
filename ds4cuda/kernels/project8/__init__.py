"""The product of n tokens' 8-bit activations with a Q8_0 matrix.

Contract: codes int8 [n, groups * inputs] and scales float32 [n, groups * inputs / 32] (see quantise), the
matrix as `ds4cuda.weights.Matrix` holds it, [outputs, inputs] -> y float32 [n, outputs], the sum over blocks
of scale * scale * the exact product of codes. Of several groups each has outputs / groups rows, which
multiply its part of the codes. A lane sums every 32nd half block in order, then lanes are summed pairwise.
Spec: model §3.1 and §4.5.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32
from ds4cuda.kernels.quantise import DenseCodes

KERNEL = Kernel("project8", Path(__file__).parent / "kernel.cu")
THREADS = 128
WARPS = THREADS // 32
# Rows of a warp, which read codes together.
ROWS = 4
# Tokens that read a row together, in a step of several.
TOKENS = 4


def build(modules: Modules) -> Callable[..., None]:
    """-> call(matrix, x, y, groups=1)."""
    launches = {
        tokens: KERNEL.specialise(modules, ROWS=ROWS, TOKENS=tokens, THREADS=THREADS)
        for tokens in (1, TOKENS)
    }

    def call(matrix: Any, x: DenseCodes, y: Any, groups: int = 1) -> None:
        count = y.shape[0]
        tokens = 1 if count == 1 else TOKENS
        sizes = (matrix.inputs, matrix.outputs, groups, count)
        warps = groups * blocks_for(matrix.outputs // groups, ROWS)
        grid = (blocks_for(warps, WARPS), blocks_for(count, tokens))
        launches[tokens](
            grid, THREADS, matrix.weights, matrix.scales, x.codes, x.scales, y, *map(int32, sizes)
        )

    return call
