"""A direction taken out of outputs of n tokens.

Contract: direction d float32 [D], scale float32 [1], output float32 [n, D] -> each row y of output becomes
y - scale * d * (d . y), in place. The scale is read on the device: another one needs no other launch.
Spec: model §7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules

KERNEL = Kernel("steer", Path(__file__).parent / "kernel.cu")
THREADS = 256


def build(modules: Modules, *, width: int) -> Callable[..., None]:
    """-> call(direction, scale, output)."""
    launch = KERNEL.specialise(modules, WIDTH=width, THREADS=THREADS)

    def call(direction: Any, scale: Any, output: Any) -> None:
        launch((output.shape[0],), THREADS, direction, scale, output)

    return call
