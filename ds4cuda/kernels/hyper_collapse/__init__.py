"""The normed input of a block from the streams, or of the output head.

Contract, for n tokens, S = 4 streams of width D, M = 2 S + S * S mixes of a block, S of the head: streams
float32 [n, S, D], partial [n, slices, M + 1] (see hyper_mix), scale and base float32 [M], norm [D] -> x
float32 [n, D] = rms(sum over s of pre_s * stream s) * norm; of a block joint [n, S + S * S]: post weights,
and the combine matrix by rows after `rounds` Sinkhorn rounds that end on columns. `epsilon` is that of the
mix. Spec: model §4.4 and §4.9.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, int32

KERNEL = Kernel("hyper_collapse", Path(__file__).parent / "kernel.cu")
THREADS = 256
STREAMS = 4


def build(
    modules: Modules,
    *,
    width: int,
    streams: int,
    rounds: int,
    epsilon: float,
    rms_epsilon: float,
    head: bool,
) -> Callable[..., None]:
    """-> call(streams, partial, scale, base, norm, x, joint); the head leaves `joint` alone.

    Raises ValueError for another number of streams than 4: an entry of the matrix is a lane's.
    """
    if streams != STREAMS:
        raise ValueError(f"hyper_collapse is written for {STREAMS} streams, not {streams}")
    launch = KERNEL.specialise(
        modules,
        WIDTH=width,
        STREAMS=streams,
        MIXES=streams if head else 2 * streams + streams**2,
        ROUNDS=rounds,
        MIX_EPSILON=epsilon,
        EPSILON=rms_epsilon,
        HEAD=head,
        THREADS=THREADS,
    )

    def call(streams: Any, partial: Any, scale: Any, base: Any, norm: Any, x: Any, joint: Any) -> None:
        arrays = (streams, partial, scale, base, norm, x, joint)
        launch((streams.shape[0],), THREADS, *arrays, int32(partial.shape[1]))

    return call
