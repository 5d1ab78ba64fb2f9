"""How long calls take on the device, beside the time in which it could have copied their bytes.

Must not know: models, how calls are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ds4mlx.costs.workload import Workload

Clock = Callable[[], float]
Evaluate = Callable[[Any], None]

# An evaluation has several calls, so that submitting it counts little, but not so many that their results
# would fill the memory.
LARGEST_CALLS = 16
LARGEST_BYTES = 1 << 30
ROUNDS = 5
COPY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Trial:
    """Calls that do one workload, each on arguments of its own. They return arrays that nothing has computed
    yet."""

    workload: Workload
    calls: Sequence[Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """`seconds` of one call, `floor` those in which the device copies as many bytes."""

    workload: Workload
    seconds: float
    floor: float

    @property
    def bytes_per_second(self) -> float:
        return self.workload.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def ratio(self) -> float:
        """Time spent in units of the floor."""
        return self.seconds / self.floor


class Stopwatch:
    """Times evaluations of lazy arrays. `clock` gives seconds, `evaluate` computes and waits."""

    def __init__(self, clock: Clock, evaluate: Evaluate = mx.eval) -> None:
        self._clock = clock
        self._evaluate = evaluate

    def copy_bandwidth(self, size: int = COPY_BYTES) -> float:
        """Bytes a second, read and written together, of an operation that does nothing else."""
        source = mx.zeros((size // 4,), mx.float32)
        self._evaluate(source)
        seconds = self.seconds_each([lambda: mx.negative(source)], 1)
        return 2 * source.nbytes / seconds

    def seconds_each(self, calls: Sequence[Callable[[], Any]], count: int) -> float:
        """Least time of a call over some evaluations of `count` calls, which take turns; the first
        evaluation, which compiles kernels and touches memory, is not counted, nor is making the graph."""
        least = float("inf")
        for round in range(ROUNDS + 1):
            results = [calls[turn % len(calls)]() for turn in range(count)]
            started = self._clock()
            self._evaluate(results)
            seconds = self._clock() - started
            if round:
                least = min(least, seconds)
        return least / count

    def times(self, trials: Iterable[Trial], bandwidth: float) -> Iterator[KernelTime]:
        """Of each trial as it comes. `bandwidth` in bytes a second."""
        for trial in trials:
            seconds = self.seconds_each(trial.calls, calls_of(trial.workload))
            yield KernelTime(trial.workload, seconds, trial.workload.bytes / bandwidth)


def calls_of(workload: Workload) -> int:
    """Calls of one evaluation."""
    return max(1, min(LARGEST_CALLS, LARGEST_BYTES // max(1, workload.bytes)))
