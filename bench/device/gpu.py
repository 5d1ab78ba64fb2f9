"""The GPU that is measured: CuPy, or the simulator in its place, and a clock for work on it.

Must not know: what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Mark(Protocol):
    """A place in the order of work."""

    def record(self) -> None: ...


class HostMark:
    """The simulator works while the host waits."""

    def record(self) -> None:
        self.time = time.perf_counter()


@dataclass(frozen=True, slots=True)
class Gpu:
    """`cupy`, whether it is simulated, and its name."""

    cupy: Any
    simulated: bool
    name: str

    @classmethod
    def open(cls, *, simulate: bool) -> Gpu:
        from ds4cuda.availability import device_name, open_cupy

        if not simulate:
            return cls(open_cupy(), False, device_name(open_cupy()))
        from tests.cuda.strict_cupy import StrictCupy

        return cls(StrictCupy(), True, "simulated")

    def mark(self) -> Any:
        return HostMark() if self.simulated else self.cupy.cuda.Event()

    def seconds(self, first: Any, last: Any) -> float:
        """Between two marks, once all work before `last` is done."""
        if self.simulated:
            return float(last.time - first.time)
        return float(self.cupy.cuda.get_elapsed_time(first, last)) / 1e3

    def timed(self, work: Callable[[], None]) -> float:
        """Seconds that `work` takes on the GPU."""
        first, last = self.mark(), self.mark()
        first.record()
        work()
        last.record()
        if not self.simulated:
            last.synchronize()
        return self.seconds(first, last)

    def used_memory(self) -> int:
        free, total = self.cupy.cuda.runtime.memGetInfo()
        return int(total) - int(free)


def copy_speed(gpu: Gpu, nbytes: int, rounds: int = 10) -> float:
    """Bytes a second that a copy within the GPU's memory moves: read and written, best of `rounds`."""
    source = gpu.cupy.zeros((nbytes,), np.uint8)
    target = gpu.cupy.zeros((nbytes,), np.uint8)
    best = min(gpu.timed(lambda: gpu.cupy.copyto(target, source)) for _ in range(rounds))
    return 2 * nbytes / best
