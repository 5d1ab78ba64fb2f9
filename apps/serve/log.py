"""The server's log: one line an event on stderr, coloured on a terminal.

Owns the line format and nothing else. Safe to call from any thread; a closed stderr is ignored.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TextIO


class LogKind(Enum):
    """What a line is about; the value is its colour on a terminal."""

    PLAIN = ""
    PREFILL = "\x1b[36m"
    GENERATION = "\x1b[32m"
    CACHE = "\x1b[33m"
    TOOLS = "\x1b[90m"
    WARNING = "\x1b[38;5;208m"
    ERROR = "\x1b[31m"


_RESET = "\x1b[0m"


class ServerLog:
    """Writes `MMDD HH:MM:SS ds4-server: TEXT` lines. Control characters in a text are shown escaped."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        colour: bool | None = None,
        now: Callable[[], time.struct_time] = time.localtime,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._colour = self._stream.isatty() if colour is None else colour
        self._now = now
        self._lock = threading.Lock()

    def line(self, text: str, kind: LogKind = LogKind.PLAIN) -> None:
        stamp = time.strftime("%m%d %H:%M:%S", self._now())
        shown = f"{stamp} ds4-server: {_printable(text)}"
        if self._colour and kind.value:
            shown = f"{kind.value}{shown}{_RESET}"
        with self._lock:
            try:
                self._stream.write(shown + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                # Nobody reads the log any more; serving goes on.
                return

    def warning(self, text: str) -> None:
        self.line(text, LogKind.WARNING)

    def error(self, text: str) -> None:
        self.line(text, LogKind.ERROR)


def describe(error: BaseException) -> str:
    """An unexpected exception in one line, with the place it was raised at (file name only)."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{where}"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
