"""The indexer's query vectors, turned, transformed and rounded as its rows are.

Contract, for n tokens, J index heads, D head dim: projected float32 [n, J * 128], rotation float32 [n, D] ->
queries float32 [n, J, 128]. Each vector is turned by the last 128 numbers of its token's rotation; where rows
are rounded it then goes through the orthonormal Walsh-Hadamard transform and is rounded to E2M1 in blocks of
32 with power-of-two scales.

The transform adds in the order of the butterfly at distances 1, 2, 4 ... 64, so that for vectors which do not
turn the result is that of `shared.quant.rounding`, bit for bit. Turning is two products and an addition,
within 2e-7 in parts of the largest. Spec: model §4.7, first step, and §4.1.

Threads: a simdgroup a vector, four neighbouring numbers a lane; grid [32 * J, n]. A step's arrays have fewer
than 2^32 numbers, so that places in them are 32-bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.kernel import Example, Kernel, Maker
from ds4mlx.kernels.sample_rows import CLOSE, normal, turns
from ds4mlx.rounding import hadamard, round_fp4
from ds4mlx.step import rotate

INDEX_DIM = 128
INDEX_FUNCTIONS = ("fp4.metal", "index_vector.metal")
_LANES = INDEX_DIM // 4
_LARGEST_GROUP = 128  # so that one token's heads spread over many cores

KERNEL = Kernel(
    name="index_queries",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("projected", "rotation"),
    outputs=("queries",),
    functions=("rotate.metal", "rounding.metal", *INDEX_FUNCTIONS),
)
KERNELS = (KERNEL,)

IndexQueries = Callable[[mx.array, mx.array], mx.array]


def index_vectors(vectors: mx.array, rotation: mx.array, rounds: bool) -> mx.array:
    """Vectors float32 [..., 128] turned by `rotation` [..., D], and transformed and rounded if `rounds`."""
    vectors = rotate(vectors, rotation[..., -INDEX_DIM:].view(mx.complex64))
    return round_fp4(hadamard(vectors)) if rounds else vectors


def fallback(projected: mx.array, rotation: mx.array, *, rounds: bool) -> mx.array:
    vectors = projected.reshape(projected.shape[0], -1, INDEX_DIM)
    return index_vectors(vectors, rotation[:, None, :], rounds)


def build(maker: Maker, *, heads: int, head_dim: int, rounds: bool) -> IndexQueries:
    """The launching function. Raises ValueError for a head dim that is no multiple of 4 or below 128."""
    if head_dim % 4 or head_dim < INDEX_DIM:
        raise ValueError(f"rotations of {head_dim} numbers turn no index vectors of {INDEX_DIM}")
    launch = KERNEL.specialise(maker, HEADS=heads, HEAD_DIM=head_dim, ROUNDS=rounds)
    threads = heads * _LANES
    group = (min(threads, _LARGEST_GROUP), 1, 1)
    dtypes = (mx.float32,)

    def index_queries(projected: mx.array, rotation: mx.array) -> mx.array:
        count = projected.shape[0]
        shapes = ((count, heads, INDEX_DIM),)
        return launch([projected, rotation], shapes, dtypes, (threads, count, 1), group)[0]

    return index_queries


def examples() -> Iterator[Example]:
    """Two tokens of five heads, rounded and not."""
    heads, head_dim, count = 5, 192, 2
    for rounds in (False, True):
        random = np.random.default_rng(1)
        arguments = (normal(random, count, heads * INDEX_DIM), turns(random, count, head_dim, 64))
        made = partial(build, heads=heads, head_dim=head_dim, rounds=rounds)
        yield Example(f"rounds {rounds}", made, partial(fallback, rounds=rounds), arguments, CLOSE)
