"""Where a session keeps the logits after a step of one token.

Contract: logits float32 [V], position int32 [1] of the token -> places float32 [2, V], of which the place of
the parity of position + 1 gets them: those before the token stay beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

KERNEL = Kernel("keep_logits", Path(__file__).parent / "kernel.cu")
_THREADS = 256


def build(modules: Modules) -> Callable[..., None]:
    """-> call(logits, position, places)."""
    launch = KERNEL.specialise(modules)

    def call(logits: Any, position: Any, places: Any) -> None:
        count = logits.shape[0]
        launch((blocks_for(count, _THREADS),), _THREADS, logits, position, places, int32(count))

    return call
