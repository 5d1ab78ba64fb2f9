"""A block's output joins the streams, and the streams go through the next mix.

Contract, for n tokens, S = 4 streams of width D, M outputs of the mix: streams float32 [n, S, D], output
[n, D], joint [n, S + S * S] (post weights, then the combine matrix C by rows), mix binary16 bits uint16
[M, S * D] -> streams, where `joins`, in place: stream j becomes post_j * output + sum over r of C[r][j] *
stream r; partial float32 [n, slices, M + 1]: sums over a slice of channels of the products with each row
of the mix, and last of the squares. Slices of 128 channels; sums within one in a fixed order. Spec: model
§4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for

KERNEL = Kernel("hyper_mix", Path(__file__).parent / "kernel.cu")
THREADS = 128


def slices(width: int) -> int:
    """Slices of the partial sums of streams of `width` channels."""
    return blocks_for(width, THREADS)


def build(modules: Modules, *, width: int, streams: int, mixes: int, joins: bool) -> Callable[..., None]:
    """-> call(streams, output, joint, mix, partial)."""
    launch = KERNEL.specialise(
        modules, WIDTH=width, STREAMS=streams, MIXES=mixes, JOINS=joins, THREADS=THREADS
    )

    def call(streams: Any, output: Any, joint: Any, mix: Any, partial: Any) -> None:
        launch((slices(width), streams.shape[0]), THREADS, streams, output, joint, mix, partial)

    return call
