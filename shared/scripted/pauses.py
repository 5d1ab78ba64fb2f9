"""The ways a scripted engine can be slow. Everything that waits goes through here, so that tests need not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_SLICE = 0.05  # seconds between two polls while a pause can be interrupted


def hold_interpreter(seconds: float) -> None:
    """Wait while holding the interpreter lock: no other thread of the process runs."""
    import ctypes

    # A function of PyDLL keeps the lock, unlike one of CDLL; poll without files only waits.
    wait = ctypes.PyDLL(None).poll
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        wait(None, 0, max(1, int(remaining * 1000)))


@dataclass(frozen=True, slots=True)
class Pauses:
    """`sleep` releases the interpreter lock while it waits, `hold` keeps it."""

    sleep: Callable[[float], None] = time.sleep
    hold: Callable[[float], None] = hold_interpreter

    def stall(self, released: float, held: float) -> None:
        """Wait without a way to be interrupted: so long with the interpreter lock released, so long held."""
        if released:
            self.sleep(released)
        if held:
            self.hold(held)

    def interruptible(self, seconds: float, interrupted: Callable[[], bool]) -> bool:
        """Sleep in slices; False if interrupted before the end."""
        while seconds > 0:
            if interrupted():
                return False
            piece = min(seconds, _SLICE)
            self.sleep(piece)
            seconds -= piece
        return not interrupted()
