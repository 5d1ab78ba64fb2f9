"""The output head's input from the residual streams. Spec: model §4.9.

Contract: streams float32 [n, S, E], their partial [n, P, S + 1] (see `hyper_mix`; any P), scale and base
float32 [S], norm float32 [E] -> x float32 [n, E] = rms(sum over s of pre[s] * streams[s]) * norm, where pre =
sigmoid(dots / sqrt(squares / (S * E) + rms epsilon) * scale + base) + epsilon. S = 4, E a multiple of 64, n *
S * E below 2^31.

Order of sums, tolerance and threads as in `hyper_collapse`, with one threadgroup a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial as bind
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.hyper import STREAMS, Collapse, collapse_streams, mix_values
from ds4mlx.kernels.kernel import Example, Kernel, Maker

KERNEL = Kernel(
    name="head_collapse",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("streams", "partial", "scale", "base", "norm"),
    outputs=("x",),
    functions=("sums.metal", "collapse.metal"),
    # One token's sums in one slice are 5 numbers.
    small=("partial",),
)
KERNELS = (KERNEL,)

HeadCollapse = Callable[[mx.array, mx.array, mx.array, mx.array, mx.array], mx.array]


def fallback(
    streams: mx.array,
    partial: mx.array,
    scale: mx.array,
    base: mx.array,
    norm: mx.array,
    *,
    epsilon: float,
    rms_epsilon: float,
) -> mx.array:
    numbers = streams.shape[1] * streams.shape[2]
    pre = mx.sigmoid(mix_values(partial, scale, base, numbers, rms_epsilon)) + epsilon
    return collapse_streams(streams, pre, norm, rms_epsilon)


def build(maker: Maker, *, width: int, streams: int, epsilon: float, rms_epsilon: float) -> HeadCollapse:
    """The launching function; `epsilon` of the hyper-connection."""
    how = Collapse(width, streams, streams, epsilon, rms_epsilon)
    launch = KERNEL.specialise(maker, **how.constants)
    group, threads, dtypes = how.group, how.group[0], (mx.float32,)

    def head_collapse(
        streams: mx.array, partial: mx.array, scale: mx.array, base: mx.array, norm: mx.array
    ) -> mx.array:
        count = streams.shape[0]
        inputs = [streams, partial, scale, base, norm]
        return launch(inputs, ((count, width),), dtypes, (threads, count, 1), group)[0]

    return head_collapse


def examples() -> Iterator[Example]:
    random = np.random.default_rng(4)
    for slices in (1, 3):
        shapes = [(1, STREAMS, 192), (1, slices, STREAMS + 1), (STREAMS,), (STREAMS,), (192,)]
        arrays = [mx.array(random.standard_normal(shape, np.float32)) for shape in shapes]
        arrays[1] = mx.abs(arrays[1]) * 100.0
        plain = bind(fallback, epsilon=1e-6, rms_epsilon=1e-6)
        subject = bind(build, width=192, streams=STREAMS, epsilon=1e-6, rms_epsilon=1e-6)
        yield Example(f"{slices} slices", subject, plain, tuple(arrays), 1e-5)
