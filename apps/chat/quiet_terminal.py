"""The terminal between two prompts: keys typed ahead neither show in the answer nor get lost.

Knows terminal modes; nothing of what is read or shown.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import get_app_or_none

# Sent when the machine shuts down, and when the terminal's window is closed.
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3


@contextmanager
def quiet_terminal() -> Iterator[None]:
    """While entered, the terminal on standard input echoes nothing, and Enter typed ahead reaches the
    next prompt as Enter, not as a new line in the text. Ctrl+C works as ever. The modes come back when
    the program ends; SIGTERM and SIGHUP end it by SystemExit. Without a terminal this does nothing."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = [*before]
    quiet[_INPUT_FLAGS] &= ~termios.ICRNL
    quiet[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    previous = {number: signal.signal(number, _leave) for number in _ENDING_SIGNALS}
    try:
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
        yield
    finally:
        # A terminal that was closed has no modes.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        for number, handler in previous.items():
            signal.signal(number, handler)


class Ended(Exception):
    """A signal ended the prompt that was open; `code` is the exit code of the program."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _leave(number: int, frame: FrameType | None) -> None:
    code = 128 + number
    prompt = get_app_or_none()
    if prompt is None or not prompt.is_running or prompt.loop is None:
        sys.exit(code)
    # SystemExit in the middle of the prompt's event loop can leave it waiting for its own tasks for ever.
    prompt.loop.call_soon_threadsafe(_end_prompt, prompt, code)


def _end_prompt(prompt: Application[Any], code: int) -> None:
    if prompt.future is None or prompt.future.done():
        sys.exit(code)
    prompt.exit(exception=Ended(code))
