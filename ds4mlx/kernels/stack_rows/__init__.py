"""Rows of many layers, one below the other, so that one write puts all of them into the state.

Contract: up to 24 arrays [1, width] of one dtype -> [count, 1, width], bit for bit. (MLX's own `stack` copies
each array in a launch of its own.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.kernel import Example, Kernel, Maker

LARGEST = 24  # Metal binds 31 buffers to a launch
_GROUP = 256

KERNEL = Kernel(
    name="stack_rows",
    body=Path(__file__).parent / "kernel.metal",
    inputs=tuple(f"row{number}" for number in range(LARGEST)),
    outputs=("stacked",),
)
KERNELS = (KERNEL,)

StackRows = Callable[[list[mx.array]], mx.array]


def fallback(rows: list[mx.array]) -> mx.array:
    return mx.stack(rows)


def build(maker: Maker, *, width: int, dtype: mx.Dtype) -> StackRows:
    """The launching function for rows of `width` numbers of `dtype`."""
    # The dtype decides about the signature, and so has to tell names apart.
    launch = KERNEL.specialise(maker, WIDTH=width, NUMBER=dtype)
    group = (min(width, _GROUP), 1, 1)

    def stack_rows(rows: list[mx.array]) -> mx.array:
        count = len(rows)
        inputs = rows + rows[:1] * (LARGEST - count)
        return launch(inputs, ((count, 1, width),), (dtype,), (width, count, 1), group)[0]

    return stack_rows


def examples() -> Iterator[Example]:
    random = np.random.default_rng(1)
    rows = [mx.array(random.standard_normal((1, 80), np.float32)) for _ in range(5)]
    yield Example("5 rows of 80", partial(build, width=80, dtype=mx.float32), fallback, (rows,), 0)
