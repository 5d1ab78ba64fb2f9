"""What the device has to know of a step of n tokens from position `start`.

Contract: frequencies float64 [2, P] (radians per position of each pair, window-only layers, then compressed
ones), start, token, chosen int32 [1] -> position int32 [1] = start; rotations float32 [2, stride, P, 2] of
which the first n of each kind are written, the cosine and sine of (start + t) * frequency, each the nearest
float32; tokens int32 [stride], of which the first becomes `token`, or what `chosen` holds where that is
negative. Spec: model §4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, int32

KERNEL = Kernel("begin_step", Path(__file__).parent / "kernel.cu")
_THREADS = 64


def build(modules: Modules, *, pairs: int) -> Callable[..., None]:
    """-> call(frequencies, rotations, position, tokens, chosen, start=, token=, count=); `chosen` may be
    `tokens`."""
    launch = KERNEL.specialise(modules, PAIRS=pairs)

    def call(
        frequencies: Any,
        rotations: Any,
        position: Any,
        tokens: Any,
        chosen: Any,
        *,
        start: int,
        token: int,
        count: int,
    ) -> None:
        stride = rotations.shape[1]
        numbers = (int32(start), int32(token), int32(stride))
        launch((count,), _THREADS, frequencies, rotations, position, tokens, chosen, *numbers)

    return call
