"""A greedy choice on the device.

Contract: logits float32 [V], allowed uint8 [V] -> token int32 [1]: the id of the largest finite logit
above -1e30 among the allowed ones, the lowest id on ties, `fallback` where there is none. Spec: model §6.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, int32

KERNEL = Kernel("pick", Path(__file__).parent / "kernel.cu")
THREADS = 1024


def build(modules: Modules, *, masked: bool) -> Callable[..., None]:
    """-> call(logits, allowed, token, fallback=); without a mask any array stands for `allowed`."""
    launch = KERNEL.specialise(modules, MASKED=masked, THREADS=THREADS)

    def call(logits: Any, allowed: Any, token: Any, *, fallback: int) -> None:
        launch((1,), THREADS, logits, allowed, token, int32(logits.shape[0]), int32(fallback))

    return call
