"""A sublayer's output joins the residual streams, which are mixed for the next one. Spec: model §4.4.

Contract: streams float32 [n, S, E], output float32 [n, E], joint float32 [n, S + S * S] (post weights, then
the combine matrix C row by row), mix float16 or float32 [M, S * E] -> joined float32 [n, S, E] and their
partial float32 [n, P, M + 1] as `hyper_mix` gives it: joined[j] = post[j] * output + sum over r of C[r][j] *
streams[r]. S = 4, E a multiple of 64, M at most 31, n * S * E below 2^31.

Rounding: the product with post is rounded, then one fused multiply-add for each r in order; 5e-7 of the sum
of the terms' magnitudes. The partial is bit-equal to that of `hyper_mix` on the joined streams, and both are
bit-equal however many tokens there are.

Threads: as in `hyper_mix`, a threadgroup a slice of 64 channels of all streams. Joining mixes streams, not
channels, so a slice needs nothing of another; each of its 8 simdgroups computes it again in registers rather
than wait at a barrier, and simdgroup j writes stream j.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.hyper import STREAMS, TILE, TILED_FROM, SlicedMix, dots_and_squares
from ds4mlx.kernels.kernel import Example, Kernel, Maker

KERNEL = Kernel(
    name="hyper_join",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("streams", "output", "joint", "mix"),
    outputs=("joined", "partial"),
    functions=("mix_slice.metal",),
)
KERNELS = (KERNEL,)

HyperJoin = Callable[[mx.array, mx.array, mx.array, mx.array], tuple[mx.array, mx.array]]


def fallback(
    streams: mx.array, output: mx.array, joint: mx.array, mix: mx.array
) -> tuple[mx.array, mx.array]:
    joined = join(streams, output, joint)
    return joined, dots_and_squares(joined, mix)


def join(streams: mx.array, output: mx.array, joint: mx.array) -> mx.array:
    """The joined streams alone: post and combine are one matrix [S + 1, S], applied to output and streams."""
    count, width = streams.shape[:2]
    weights = joint.reshape(count, width + 1, width).swapaxes(1, 2)
    return weights @ mx.concatenate([output[:, None], streams], axis=1)


def build(maker: Maker, *, width: int, streams: int, mixes: int, dtype: mx.Dtype) -> HyperJoin:
    """The launching function for mixes of `mixes` rows of `dtype`."""
    cut = SlicedMix(width, streams, mixes)
    one, tiled = (
        KERNEL.specialise(maker, TOKENS=tokens, WEIGHT=dtype, **cut.constants) for tokens in (1, TILE)
    )
    slices, group, threads = cut.slices, cut.group, cut.threads
    columns, dtypes = mixes + 1, (mx.float32, mx.float32)

    def hyper_join(
        streams: mx.array, output: mx.array, joint: mx.array, mix: mx.array
    ) -> tuple[mx.array, mx.array]:
        shape = streams.shape
        count = shape[0]
        launch = one if count < TILED_FROM else tiled
        joined, partial = launch(
            [streams, output, joint, mix],
            (shape, (count, slices, columns)),
            dtypes,
            threads(count),
            group,
        )
        return joined, partial

    return hyper_join


def examples() -> Iterator[Example]:
    """Compared after the slices' sums, which is all that a partial promises."""
    random = np.random.default_rng(2)
    for count in (1, TILED_FROM + 1):
        shapes = [(count, STREAMS, 128), (count, 128), (count, STREAMS + STREAMS**2), (24, STREAMS * 128)]
        arrays = [mx.array(random.standard_normal(shape, np.float32)) for shape in shapes]
        arrays[3] = arrays[3].astype(mx.float16)
        yield Example(f"{count} tokens", _summed, _summed_fallback, tuple(arrays), 5e-6)


def _summed(maker: Maker) -> HyperJoin:
    return _with_summed_slices(build(maker, width=128, streams=STREAMS, mixes=24, dtype=mx.float16))


def _summed_fallback(*arrays: mx.array) -> tuple[mx.array, mx.array]:
    return _with_summed_slices(fallback)(*arrays)


def _with_summed_slices(subject: HyperJoin) -> HyperJoin:
    def summed(
        streams: mx.array, output: mx.array, joint: mx.array, mix: mx.array
    ) -> tuple[mx.array, mx.array]:
        joined, partial = subject(streams, output, joint, mix)
        return joined, partial.sum(axis=1)

    return summed
