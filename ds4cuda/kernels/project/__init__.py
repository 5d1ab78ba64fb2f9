"""The product of n tokens' vectors with a matrix.

Contract: x float32 [n, groups * inputs], the matrix as `ds4cuda.weights.Matrix` holds it, [outputs,
inputs] -> y float32 [n, outputs]. Of several groups each has outputs / groups rows, which multiply its
part of x. Weights are exact; a lane sums every 32nd four columns in order, then lanes are summed pairwise.
Spec: model §3 and §4.5.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Constant, Kernel, Launch, Modules, blocks_for, int32

KERNEL = Kernel("project", Path(__file__).parent / "kernel.cu")
THREADS = 128
WARPS = THREADS // 32
# Rows of a warp, which read an input together.
ROWS = 4
# Tokens that read a row together, in a step of several.
TOKENS = 8
WEIGHT_TYPES = {"q8_0": "signed char", "f16": "unsigned short"}


def specialise_for_counts(
    kernel: Kernel, modules: Modules, storage: str, **constants: Constant
) -> Callable[[int], tuple[Launch, int]]:
    """-> for a step of n tokens: the kernel and how many tokens it takes together."""

    def of(tokens: int) -> tuple[Launch, int]:
        written: dict[str, Constant] = {"Weight": WEIGHT_TYPES[storage], "ROWS": ROWS, "TOKENS": tokens}
        written |= {"THREADS": THREADS, **constants}
        return kernel.specialise(modules, **written), tokens

    one, several = of(1), of(TOKENS)
    return lambda count: one if count == 1 else several


def build(modules: Modules, *, storage: str) -> Callable[..., None]:
    """-> call(matrix, x, y, groups=1)."""
    of = specialise_for_counts(KERNEL, modules, storage)

    def call(matrix: Any, x: Any, y: Any, groups: int = 1) -> None:
        count = x.shape[0]
        launch, tokens = of(count)
        sizes = (matrix.inputs, matrix.outputs, groups, count)
        warps = groups * blocks_for(matrix.outputs // groups, ROWS)
        grid = (blocks_for(warps, WARPS), blocks_for(count, tokens))
        launch(grid, THREADS, matrix.weights, matrix.scales, x, y, *map(int32, sizes))

    return call
