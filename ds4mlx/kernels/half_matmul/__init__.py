"""Many tokens times a float16 matrix: compressors, the router and index queries in prefill.

Contract: half_matmul(x float32 [n, groups * inputs], weight float16 [..., outputs, inputs]) -> float32
[n, groups * outputs]; with groups, `weight` is [groups, outputs, inputs] and part g of a token meets
matrix g. Weights are widened to float32 exactly and nothing is rounded before the sum: a result differs from
the exact one by at most inputs * 2^-24 times the sum of |x w|, a rounding an addition. Inputs are added up in
runs of 8 in ascending order, so the same operands give the same bits, whatever else is in the step.
Spec: model §4.6, §4.7, §4.8.

Threads: a group of 128 computes 64 tokens x 64 outputs. It stages 16 inputs of both factors at a time: four
neighbouring threads read 64 bytes of a token and 32 of an output. Each of its 4 simdgroups multiplies 32 x 32
with 16 accumulators of 8 x 8. Both factors are float32 there, although the weights are not: a
`simdgroup_matrix` product is documented for one type only, the hardware multiplies both at one rate, and
float16 activations would cost the router and the indexer, which decide by rank, half of their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.kernel import Example, Kernel, Maker
from ds4mlx.linear import HalfMatrix, multiply_groups

_TILE = 64
_DEPTH = 16
_SPACED = _DEPTH + 4
_THREADS = 128

KERNEL = Kernel(
    name="half_matmul",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("x", "weight"),
    outputs=("y",),
)
KERNELS = (KERNEL,)

HalfMatmul = Callable[[mx.array, mx.array], mx.array]


def fallback(x: mx.array, weight: mx.array, *, groups: int = 1) -> mx.array:
    return multiply_groups(x, HalfMatrix(weight), groups)


def build(maker: Maker, *, inputs: int, outputs: int, groups: int = 1) -> HalfMatmul:
    """The launching function for weights of `groups` x `outputs` x `inputs`.

    Raises ValueError where `inputs` is not a multiple of 16.
    """
    if inputs % _DEPTH:
        raise ValueError(f"a float16 matrix of {inputs} inputs: must be a multiple of {_DEPTH}")
    launch = KERNEL.specialise(
        maker, INPUTS=inputs, OUTPUTS=outputs, GROUPS=groups, TILE=_TILE, DEPTH=_DEPTH, SPACED=_SPACED
    )
    columns = -(-outputs // _TILE) * _THREADS
    dtypes, group = (mx.float32,), (_THREADS, 1, 1)

    def half_matmul(x: mx.array, weight: mx.array) -> mx.array:
        count = x.shape[0]
        threads = (columns, -(-count // _TILE), groups)
        return launch([x, weight], ((count, groups * outputs),), dtypes, threads, group)[0]

    return half_matmul


def examples() -> Iterator[Example]:
    random = np.random.default_rng(2)
    x = mx.array(random.standard_normal((70, 2 * 48), np.float32))
    weight = mx.array(random.standard_normal((2, 72, 48), np.float32)).astype(mx.float16)
    yield Example(
        label="70 tokens, 2 groups of 48 to 72",
        build=partial(build, inputs=48, outputs=72, groups=2),
        fallback=partial(fallback, groups=2),
        arguments=(x, weight),
        tolerance=1e-5,
    )
