"""Streams of n tokens.

Contract: tokens int32 [n], embedding binary16 bits uint16 [V, D] -> streams float32 [n, S, D], the token's
embedding in each stream; exact. Spec: model §4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules

KERNEL = Kernel("embed", Path(__file__).parent / "kernel.cu")
_THREADS = 256


def build(modules: Modules, *, width: int, streams: int) -> Callable[..., None]:
    """-> call(tokens, embedding, streams), with one row of streams for each token."""
    launch = KERNEL.specialise(modules, WIDTH=width, STREAMS=streams)

    def call(tokens: Any, embedding: Any, streams: Any) -> None:
        launch((streams.shape[0],), _THREADS, tokens, embedding, streams)

    return call
