"""Raw mix outputs of the residual streams, before norm, scale and base. Spec: model §4.4 step 2, §4.9.

Contract: streams float32 [n, S, E], mix float16 or float32 [M, S * E] -> partial float32 [n, P, M + 1]. The
sums over P of columns 0 .. M - 1 are the dots of the flattened streams with the mix's rows, that of column M
is the sum of squares. The kernel has P = E / 64, the fallback P = 1. S = 4, E a multiple of 64, M at most 31,
n * S * E below 2^31.

Order of sums: a slice is 64 channels of all streams; lane l adds its products for channels 2 l, 2 l + 1 of
stream 0, 1, 2, 3 one after the other, then the simdgroup's lanes are added. A token's numbers are bit-equal
however many tokens there are. Against exact sums: 1e-6 of the sum of the products' magnitudes.

Threads: a threadgroup of 8 simdgroups has a slice (64 threadgroups for E = 4,096); all of its simdgroups read
the same 1 KiB of streams, and each its own rows of the mix, 2 neighbouring weights a lane. From 16 tokens on
a threadgroup takes 8 tokens with the weights in registers. No threadgroup memory, no barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.hyper import STREAMS, TILE, TILED_FROM, SlicedMix, dots_and_squares
from ds4mlx.kernels.kernel import Example, Kernel, Maker

KERNEL = Kernel(
    name="hyper_mix",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("streams", "mix"),
    outputs=("partial",),
    functions=("mix_slice.metal",),
)
KERNELS = (KERNEL,)

HyperMix = Callable[[mx.array, mx.array], mx.array]

fallback = dots_and_squares


def build(maker: Maker, *, width: int, streams: int, mixes: int, dtype: mx.Dtype) -> HyperMix:
    """The launching function for mixes of `mixes` rows of `dtype`."""
    cut = SlicedMix(width, streams, mixes)
    one, tiled = (
        KERNEL.specialise(maker, TOKENS=tokens, WEIGHT=dtype, **cut.constants) for tokens in (1, TILE)
    )
    slices, group, threads = cut.slices, cut.group, cut.threads
    columns, dtypes = mixes + 1, (mx.float32,)

    def hyper_mix(streams: mx.array, mix: mx.array) -> mx.array:
        count = streams.shape[0]
        launch = one if count < TILED_FROM else tiled
        return launch([streams, mix], ((count, slices, columns),), dtypes, threads(count), group)[0]

    return hyper_mix


def examples() -> Iterator[Example]:
    """Compared after the slices' sums, which is all that a partial promises."""
    random = np.random.default_rng(1)
    for count in (1, TILED_FROM + 1):
        streams = mx.array(random.standard_normal((count, STREAMS, 128), np.float32))
        mix = mx.array(random.standard_normal((24, STREAMS * 128), np.float32)).astype(mx.float16)
        yield Example(f"{count} tokens", _summed, _summed_fallback, (streams, mix), 5e-6)


def _summed(maker: Maker) -> HyperMix:
    subject = build(maker, width=128, streams=STREAMS, mixes=24, dtype=mx.float16)
    return lambda streams, mix: subject(streams, mix).sum(axis=1)


def _summed_fallback(streams: mx.array, mix: mx.array) -> mx.array:
    return fallback(streams, mix).sum(axis=1)
