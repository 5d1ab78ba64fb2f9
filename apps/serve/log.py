"""The server's log: one line an event on stderr, coloured on a terminal, JSON for programs that read it.

Owns the line format and nothing else. Safe to call from any thread; a closed stderr is ignored.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Literal, TextIO

LogFormat = Literal["auto", "text", "json"]


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
LogFact = str | int | float | None


class ServerLog:
    """Writes `MMDD HH:MM:SS ds4-server: TEXT` lines. Control characters in a text are shown escaped.

    In JSON each line is an object: `time` (UTC), `level`, `kind`, `text`, and what else is known of the event
    by name. `form` auto: JSON unless `stream` is a terminal.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        colour: bool | None = None,
        form: LogFormat = "text",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        on_terminal = self._stream.isatty()
        self._colour = on_terminal if colour is None else colour
        self._json = form == "json" or (form == "auto" and not on_terminal)
        self._now = now
        self._lock = threading.Lock()

    def line(self, text: str, kind: LogKind = LogKind.PLAIN, **facts: LogFact) -> None:
        """Write one line; `facts` are what `text` says, by name, for programs."""
        shown = self._as_json(text, kind, facts) if self._json else self._as_text(text, kind)
        with self._lock:
            try:
                self._stream.write(shown + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                # Nobody reads the log any more; serving goes on.
                return

    def warning(self, text: str, **facts: LogFact) -> None:
        self.line(text, LogKind.WARNING, **facts)

    def error(self, text: str, **facts: LogFact) -> None:
        self.line(text, LogKind.ERROR, **facts)

    def _as_text(self, text: str, kind: LogKind) -> str:
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(self._now()))
        shown = f"{stamp} ds4-server: {_printable(text)}"
        return f"{kind.value}{shown}{_RESET}" if self._colour and kind.value else shown

    def _as_json(self, text: str, kind: LogKind, facts: Mapping[str, LogFact]) -> str:
        urgent = kind in (LogKind.WARNING, LogKind.ERROR)
        event: dict[str, LogFact] = {
            "time": datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds"),
            "level": kind.name.lower() if urgent else "info",
            "kind": "server" if urgent or kind is LogKind.PLAIN else kind.name.lower(),
            "text": text,
        }
        # Pure ASCII goes through whatever reads it.
        return json.dumps({**event, **facts})


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
