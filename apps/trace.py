"""`--trace FILE`: what a model was sent and what came, for people who want to see exactly.

It holds secrets: the file is created readable by its owner only, and truncated at start. Knows no event.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self


class TraceFile:
    """An unbuffered file for traces, made anew. When it cannot be written any more, that is said once,
    through `say`, and costs nobody an answer. Raises OSError if it cannot be made."""

    def __init__(self, path: Path, *, say: Callable[[str], object]) -> None:
        self._path = path
        self._say = say
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
        self._file: BinaryIO | None = os.fdopen(descriptor, "wb", buffering=0)

    @property
    def open(self) -> bool:
        """False once it is closed, or could not be written."""
        return self._file is not None

    def write(self, text: str) -> None:
        """Write `text` at once; lone surrogates are shown escaped."""
        if self._file is None:
            return
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            # An almost full disk takes a part.
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._say(f"the trace ends here: cannot write {self._path}: {error.strerror or error}")
            self.close()

    def close(self) -> None:
        """Stop tracing."""
        file, self._file = self._file, None
        if file is not None:
            # Some file systems tell of a full disk only here.
            with contextlib.suppress(OSError):
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Trace:
    """One JSON line per event; without a path it does nothing."""

    def __init__(self, path: Path | None, *, say: Callable[[str], object]) -> None:
        self._file = None if path is None else TraceFile(path, say=say)

    def write(self, event: str, **fields: Any) -> None:
        """Write one line: `event` and its fields."""
        if self._file is not None and self._file.open:
            self._file.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Stop tracing."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
