"""The terminal between two prompts: keys typed ahead neither show in the answer nor get lost.

Knows terminal modes; nothing of what is read or shown.
"""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_TERMINATED_EXIT = 128 + signal.SIGTERM
_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3


@contextmanager
def quiet_terminal() -> Iterator[None]:
    """While entered, the terminal on standard input echoes nothing, and Enter typed ahead reaches the
    next prompt as Enter, not as a new line in the text. Ctrl+C works as ever. The modes come back when
    the program ends, by SIGTERM too. Without a terminal this does nothing."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = [*before]
    quiet[_INPUT_FLAGS] &= ~termios.ICRNL
    quiet[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    previous = signal.signal(signal.SIGTERM, _leave)
    try:
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, previous)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(_TERMINATED_EXIT)
