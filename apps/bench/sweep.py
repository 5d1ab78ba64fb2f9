"""The frontier sweep: prefill and generation speed at growing contexts. Spec: apps §2.1.

Knows the session protocol and a clock; neither files nor screens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from shared.errors import UsageError
from shared.power import PowerGovernor
from shared.sampling import GREEDY
from shared.session import CancelCheck, Progress, Session


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """Frontiers run from `start` to `maximum` tokens, by `increment`, or by factor if `factor` > 1."""

    start: int = 2048
    maximum: int = 32768
    increment: int = 2048
    factor: float = 1.0
    generate: int = 128

    def check(self) -> None:
        """Raises UsageError naming the flags that contradict each other."""
        if not 1 <= self.start <= self.maximum:
            raise UsageError(f"--ctx-start {self.start} must lie between 1 and --ctx-max {self.maximum}")
        if self.increment < 1:
            raise UsageError(f"--step-incr must be at least 1, not {self.increment}")
        if not 1 <= self.factor < math.inf:
            raise UsageError(f"--step-mul must be at least 1, not {self.factor:g}")
        if self.generate < 0:
            raise UsageError(f"--gen-tokens must be 0 or more, not {self.generate}")

    def frontiers(self) -> Iterator[int]:
        """The context sizes to measure, ascending; the last one is `maximum`."""
        frontier = self.start
        while frontier < self.maximum:
            yield frontier
            if self.factor == 1:
                frontier += self.increment
            else:
                frontier = max(frontier + 1, math.ceil(frontier * self.factor))
        yield self.maximum


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One frontier. Rates in tokens per second; the names of the fields but the last, the token ids that
    were generated, are the CSV header."""

    ctx_tokens: int
    prefill_tokens: int
    prefill_tps: float
    gen_tokens: int
    gen_tps: float
    kvcache_bytes: int
    generated: tuple[int, ...] = ()

    def csv(self) -> str:
        return ",".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in self.values())

    def values(self) -> list[int | float]:
        return [getattr(self, name) for name in COLUMNS]


COLUMNS = tuple(field.name for field in fields(SweepRow) if field.name != "generated")
CSV_HEADER = ",".join(COLUMNS)


def sweep(
    session: Session,
    tokens: Sequence[int],
    settings: SweepSettings,
    *,
    end_token: int,
    vocabulary_size: int,
    power: PowerGovernor,
    progress: Callable[[int], Progress] = lambda _: _silent,
    at_frontier: Callable[[int, int], object] = lambda _frontier, _new: None,
    cancelled: CancelCheck | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[SweepRow]:
    """Measure every frontier of `settings` on one session, yielding a row for each.

    `progress(frontier)` returns the callback for that prefill; `at_frontier(frontier, new_tokens)` runs
    between the timers, with the frontier's logits in the session.
    """
    not_the_end = np.ones(vocabulary_size, dtype=np.bool_)
    not_the_end[end_token] = False
    previous = 0
    for frontier in settings.frontiers():
        started = clock()
        session.sync(tokens[:frontier], progress=progress(frontier), cancelled=cancelled)
        session.logits()  # waits for the device
        prefill_seconds = clock() - started
        at_frontier(frontier, frontier - previous)
        snapshot = session.snapshot() if settings.generate else None
        generation_seconds = 0.0
        generated: list[int] = []
        if snapshot is not None:
            started = clock()
            for _ in range(settings.generate):
                began = power.start()
                picked = session.pick(GREEDY, allowed=not_the_end)
                session.submit(picked)
                generated.append(picked.value())
                power.rest("decode", began, cancelled)
            session.logits()
            generation_seconds = clock() - started
            session.restore(snapshot)
        yield SweepRow(
            frontier,
            frontier - previous,
            _rate(frontier - previous, prefill_seconds),
            settings.generate,
            _rate(settings.generate, generation_seconds),
            len(snapshot) if snapshot is not None else 0,
            tuple(generated),
        )
        previous = frontier


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count and seconds > 0 else 0.0


def _silent(_done: int, _total: int) -> None:
    return None
