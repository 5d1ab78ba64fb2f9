"""A sublayer's input from the residual streams, and the weights with which its output joins them again.

Contract: streams float32 [n, S, E], their partial [n, P, M + 1] (see `hyper_mix`; any P), scale and base
float32 [M] (M = 2 S + S * S outputs: pre, post, combine), norm float32 [E] -> x float32 [n, E] and joint
float32 [n, S + S * S]. S = 4, E a multiple of 64, n * S * E below 2^31. Spec: model §4.4 steps 1 to 8, then
the sublayer's norm:

    values = dots / sqrt(squares / (S * E) + rms epsilon) * scale + base
    pre = sigmoid(values) + epsilon;  post = 2 sigmoid(values)
    C = softmax of each row + epsilon; columns, then rounds - 1 times rows and columns, are divided by their
        sum + epsilon
    x = rms(sum over s of pre[s] * streams[s]) * norm;  joint = [post | C row by row]

Order of sums: simdgroup g adds slices g, g + 16, ..., then the simdgroups' sums are added in order; sums of
four in the combine matrix are sums of two sums of two; channels of x as a thread has them, then `group_sum`.
A token's numbers do not depend on the others. Against float64: 2e-6 of the largest in x and in joint, plus
what an error of the dots makes.

Threads: two threadgroups a token, of a lane for each 4 channels, at most 16 simdgroups. Both add up the
slices, a lane an output. One then collapses the streams, 4 neighbouring channels a lane; in the other, 16
lanes hold the combine matrix: its long chain of divisions runs beside the memory-bound half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from functools import partial as bind
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.hyper import STREAMS, Collapse, collapse_streams, mix_values
from ds4mlx.kernels.kernel import Example, Kernel, Maker

KERNEL = Kernel(
    name="hyper_collapse",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("streams", "partial", "scale", "base", "norm"),
    outputs=("x", "joint"),
    functions=("sums.metal", "collapse.metal", "sinkhorn.metal"),
)
KERNELS = (KERNEL,)

HyperCollapse = Callable[[mx.array, mx.array, mx.array, mx.array, mx.array], tuple[mx.array, mx.array]]


def fallback(
    streams: mx.array,
    partial: mx.array,
    scale: mx.array,
    base: mx.array,
    norm: mx.array,
    *,
    rounds: int,
    epsilon: float,
    rms_epsilon: float,
) -> tuple[mx.array, mx.array]:
    width = streams.shape[1]
    values = mix_values(partial, scale, base, width * streams.shape[2], rms_epsilon)
    gates = mx.sigmoid(values[:, : 2 * width])
    combine = doubly_normalised(values[:, 2 * width :], streams=width, rounds=rounds, epsilon=epsilon)
    joint = mx.concatenate([2.0 * gates[:, width:], combine], axis=1)
    return collapse_streams(streams, gates[:, :width] + epsilon, norm, rms_epsilon), joint


def doubly_normalised(logits: mx.array, *, streams: int, rounds: int, epsilon: float) -> mx.array:
    """Combine matrices from their logits, both as flat rows [n, S * S]: softmax of each row, then columns,
    rows, columns ... columns, `rounds` times columns in all. One product with a constant gives every entry
    its row or column sum."""
    row_sums, column_sums, guard = _summing(streams, epsilon)
    matrix = mx.softmax(logits.reshape(-1, streams, streams), axis=-1).reshape(-1, streams**2) + epsilon
    matrix = matrix / mx.addmm(guard, matrix, column_sums)
    for _ in range(rounds - 1):
        matrix = matrix / mx.addmm(guard, matrix, row_sums)
        matrix = matrix / mx.addmm(guard, matrix, column_sums)
    return matrix


@cache
def _summing(streams: int, epsilon: float) -> tuple[mx.array, mx.array, mx.array]:
    same, every = np.eye(streams, dtype=np.float32), np.ones((streams, streams), np.float32)
    # With the shape of one token's matrix, so that nothing has to be spread when decoding.
    guard = np.full((1, streams**2), epsilon, np.float32)
    return mx.array(np.kron(same, every)), mx.array(np.kron(every, same)), mx.array(guard)


def build(
    maker: Maker, *, width: int, streams: int, rounds: int, epsilon: float, rms_epsilon: float
) -> HyperCollapse:
    """The launching function; `rounds` Sinkhorn rounds, `epsilon` of the hyper-connection."""
    how = Collapse(width, streams, streams * (2 + streams), epsilon, rms_epsilon)
    launch = KERNEL.specialise(maker, ROUNDS=rounds, **how.constants)
    weights, group, threads = streams + streams**2, how.group, how.group[0]
    dtypes = (mx.float32, mx.float32)

    def hyper_collapse(
        streams: mx.array, partial: mx.array, scale: mx.array, base: mx.array, norm: mx.array
    ) -> tuple[mx.array, mx.array]:
        count = streams.shape[0]
        x, joint = launch(
            [streams, partial, scale, base, norm],
            ((count, width), (count, weights)),
            dtypes,
            (threads, count, 2),
            group,
        )
        return x, joint

    return hyper_collapse


def examples() -> Iterator[Example]:
    random = np.random.default_rng(3)
    mixes = STREAMS * (2 + STREAMS)
    shapes = [(2, STREAMS, 192), (2, 3, mixes + 1), (mixes,), (mixes,), (192,)]
    arrays = [mx.array(random.standard_normal(shape, np.float32)) for shape in shapes]
    arrays[1] = mx.abs(arrays[1]) * 100.0
    plain = bind(fallback, rounds=20, epsilon=1e-6, rms_epsilon=1e-6)
    subject = bind(build, width=192, streams=STREAMS, rounds=20, epsilon=1e-6, rms_epsilon=1e-6)
    yield Example("2 tokens of 3 slices", subject, plain, tuple(arrays), 1e-5)
