"""A clock that moves only when told to, and a sleep that moves it."""

from __future__ import annotations


class FakeClock:
    """`clock()` is the time; `sleep` advances it and remembers how long each sleep was."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
