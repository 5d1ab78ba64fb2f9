"""What the scripted engine was asked to do: one entry per call, kept in memory and written to a file."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TextIO

from shared.errors import UsageError

_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """`t` is the clock's time in seconds (since 1970 by default), `turn` the index of the script's turn in
    play, `tokens` those that the call dealt with: of a sync the whole prompt, of a pick or submit the
    step, of anything else the timeline afterwards."""

    t: float
    turn: int | None
    call: str
    tokens: int
    reused: int = 0
    evaluated: int = 0


class Journal:
    """Appends to `path` if there is one; the file is whole after every line."""

    def __init__(self, path: str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.entries: deque[JournalEntry] = deque(maxlen=_KEPT)
        self._clock = clock
        self._file: TextIO | None = None
        if path is not None:
            try:
                self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by `close`)
            except OSError as error:
                raise UsageError(f"cannot write the journal {path}: {error.strerror}") from error

    def note(
        self, call: str, tokens: int, *, turn: int | None = None, reused: int = 0, evaluated: int = 0
    ) -> None:
        """Record one call."""
        entry = JournalEntry(self._clock(), turn, call, tokens, reused, evaluated)
        self.entries.append(entry)
        if self._file is not None:
            self._file.write(json.dumps(asdict(entry)) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
