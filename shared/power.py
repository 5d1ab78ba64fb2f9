"""The power limit: rest between units of work so that the machine draws less on average.

Spec: model §7 and apps, shared conventions. Output never depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_OLD_SHARE = 0.875


class PowerGovernor:
    """Sleeps `average * (100 - percent) / percent` after each unit of work of a kind.

    `average` is an exponential mean of the unit's wall time (7/8 old, 1/8 new), kept per `unit` key
    (one key for each prefill layer, one for decode). `clock` and `sleep` are injectable.
    """

    def __init__(
        self,
        percent: int = 100,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._averages: dict[str, float] = {}
        self.percent = percent

    @property
    def percent(self) -> int:
        return self._percent

    @percent.setter
    def percent(self, value: int) -> None:
        if not 1 <= value <= 100:
            raise ValueError(f"power must be between 1 and 100, not {value}")
        self._percent = value

    @property
    def active(self) -> bool:
        """False at 100 %: callers then need not submit work in single units."""
        return self._percent < 100

    def start(self) -> float:
        """The start time of a unit, to be handed to `rest`."""
        return self._clock()

    def rest(self, unit: str, started: float, interrupted: Callable[[], bool] | None = None) -> None:
        """End a unit that began at `started` and sleep its share, in short slices so that an interrupt
        cuts the sleep short."""
        if not self.active:
            return
        spent = max(0.0, self._clock() - started)
        old = self._averages.get(unit)
        average = spent if old is None else _OLD_SHARE * old + (1 - _OLD_SHARE) * spent
        self._averages[unit] = average
        remaining = average * (100 - self._percent) / self._percent
        while remaining > 0 and not (interrupted is not None and interrupted()):
            piece = min(remaining, 0.05)
            self._sleep(piece)
            remaining -= piece
