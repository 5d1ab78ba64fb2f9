"""One or two matrices times the same activations; every dense product of a step that nothing is fused with.

Contract: project(x float32 [n, groups * inputs], first, second=None) -> (y, second's y or None), float32
[n, groups * outputs] each. Matrices are `linear.PackedMatrix` (Q8_0) or `linear.HalfMatrix` of the built
dimensions; with groups, part g of x meets matrix g. Weights act with their exact values, x is not rounded.

One token is one launch for both matrices. A result differs from the exact one by at most (16 + inputs / 256)
* 2^-24 times the sum of |x w|: a lane adds every 32nd run of 16 (float16: 8) products in ascending order, a
simdgroup adds its lanes as the hardware does, the same way each time. The kernel reads 9 bits a Q8_0 weight,
since a block's bias is -128 times its scale. x and weights must begin on 16 bytes.
Many tokens go through `mx.quantized_matmul` (float32) and `half_matmul`. Spec: model §4.5 to §4.9.

Threads: a simdgroup computes 4 neighbouring outputs, each of them with all its lanes, which read 512
neighbouring bytes of a row at a time; what a lane reads of x serves all 4. There are outputs / 4 simdgroups,
two to a threadgroup: small groups spread the narrow matrices over all cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from ds4mlx.kernels import half_matmul
from ds4mlx.kernels.kernel import Example, Kernel, Maker
from ds4mlx.linear import Dimensions, HalfMatrix, Matrix, PackedMatrix, multiply_groups, pack_q8_0

ROWS = 4
GROUP = (64, 1, 1)
LANES = 32
_FUNCTIONS = ("q8_0.metal", "f16.metal", "project_rows.metal")
# Two of 32 inputs share a scale, and an array of fewer than 8 scales would change its address space.
_BLOCK, _SMALLEST_SIZE = 32, 256

ONE = Kernel(
    name="project_one",
    body=Path(__file__).parent / "one.metal",
    inputs=("x", "weights", "scales"),
    outputs=("y",),
    functions=_FUNCTIONS,
)
TWO = Kernel(
    name="project_two",
    body=Path(__file__).parent / "two.metal",
    inputs=("x", "first", "first_scales", "second", "second_scales"),
    outputs=("first_y", "second_y"),
    functions=_FUNCTIONS,
)
KERNELS = (ONE, TWO, *half_matmul.KERNELS)

Project = Callable[..., tuple[mx.array, mx.array | None]]
Multiply = Callable[[mx.array, Any], mx.array]


def fallback(
    x: mx.array, first: Matrix, second: Matrix | None = None, *, groups: int = 1
) -> tuple[mx.array, mx.array | None]:
    products = (multiply_groups(x, first, groups), None)
    return products if second is None else (products[0], multiply_groups(x, second, groups))


def build(maker: Maker, *, first: Dimensions, second: Dimensions | None = None) -> Project:
    """The launching function for matrices of these dimensions.

    Raises ValueError where inputs are not a multiple of 32, a matrix has fewer than 256 weights or another
    storage, or where the two differ in inputs or groups.
    """
    return _build_one(maker, first) if second is None else _build_two(maker, first, second)


def _build_one(maker: Maker, only: Dimensions) -> Project:
    check(only)
    launch = ONE.specialise(maker, ROWS=ROWS, INPUTS=only.inputs, OUTPUTS=only.outputs)
    shapes, dtypes = ((1, only.groups * only.outputs),), (mx.float32,)
    threads = (tiles(only) * LANES, 1, 1)
    multiply = for_many_tokens(maker, only)

    def project(x: mx.array, first: Any, second: None = None) -> tuple[mx.array, None]:
        if x.shape[0] > 1:
            return multiply(x, first), None
        return launch([x, *first.operands], shapes, dtypes, threads, GROUP)[0], None

    return project


def _build_two(maker: Maker, first: Dimensions, second: Dimensions) -> Project:
    check(first)
    check(second)
    if (first.inputs, first.groups) != (second.inputs, second.groups):
        raise ValueError(f"two matrices for one input: {first} and {second}")
    launch = TWO.specialise(
        maker,
        ROWS=ROWS,
        INPUTS=first.inputs,
        FIRST_OUTPUTS=first.outputs,
        FIRST_TILES=tiles(first),
        SECOND_OUTPUTS=second.outputs,
    )
    shapes = tuple((1, part.groups * part.outputs) for part in (first, second))
    dtypes = (mx.float32, mx.float32)
    threads = ((tiles(first) + tiles(second)) * LANES, 1, 1)
    multiply_first, multiply_second = for_many_tokens(maker, first), for_many_tokens(maker, second)

    def project(x: mx.array, first: Any, second: Any) -> tuple[mx.array, mx.array]:
        if x.shape[0] > 1:
            return multiply_first(x, first), multiply_second(x, second)
        one, other = launch([x, *first.operands, *second.operands], shapes, dtypes, threads, GROUP)
        return one, other

    return project


def check(matrix: Dimensions) -> None:
    """Raises ValueError for dimensions that the kernels do not serve."""
    if matrix.storage == "f32":
        raise ValueError("a float32 matrix is multiplied as an array")
    if matrix.inputs % _BLOCK or matrix.inputs * matrix.outputs < _SMALLEST_SIZE:
        raise ValueError(
            f"inputs must be a multiple of {_BLOCK}, weights at least {_SMALLEST_SIZE}: {matrix}"
        )


def tiles(matrix: Dimensions) -> int:
    """Simdgroups that a matrix takes."""
    return matrix.groups * -(-matrix.outputs // ROWS)


def for_many_tokens(maker: Maker, matrix: Dimensions) -> Multiply:
    """x [n, groups * inputs], matrix -> [n, groups * outputs]."""
    if matrix.storage == "q8_0":
        return partial(multiply_groups, groups=matrix.groups)
    product = half_matmul.build(maker, inputs=matrix.inputs, outputs=matrix.outputs, groups=matrix.groups)
    return lambda x, matrix: product(x, matrix.weight)


def examples() -> Iterator[Example]:
    random = np.random.default_rng(3)
    blocks = random.integers(0, 256, (2 * 40 * 2, 34), dtype=np.uint8)
    blocks[:, :2] = np.full((1, 1), 0.01, np.float16).view(np.uint8)
    packed = pack_q8_0(blocks.reshape(-1), 80)
    half = HalfMatrix(mx.array(random.standard_normal((30, 64), np.float32)).astype(mx.float16))
    build_both = partial(build, first=packed.dimensions, second=half.dimensions)
    for count in (1, 20):
        x = mx.array(random.standard_normal((count, 64), np.float32))
        yield Example(f"Q8_0 and float16, {count} tokens", build_both, fallback, (x, packed, half), 1e-5)
    groups = PackedMatrix(
        *(part.reshape(2, 40, -1) for part in (packed.packed, packed.scales, packed.biases))
    )
    build_one = partial(build, first=groups.dimensions)
    x = mx.array(random.standard_normal((1, 2 * 64), np.float32))
    yield Example("Q8_0 in 2 groups", build_one, partial(fallback, groups=2), (x, groups), 1e-5)
