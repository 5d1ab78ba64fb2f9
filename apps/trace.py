"""`--trace FILE`: one JSON line per event, for people who want to see exactly what a model was sent.

It holds secrets: the file is created readable by its owner only, and truncated at start. Knows no event.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO


class Trace:
    """Writes events to `path`; without a path it does nothing. A file that cannot be written any more is
    said once, through `say`, and costs nobody an answer."""

    def __init__(self, path: Path | None, *, say: Callable[[str], object]) -> None:
        self._path = path
        self._say = say
        self._file: BinaryIO | None = None
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.fchmod(descriptor, 0o600)
            self._file = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, event: str, **fields: Any) -> None:
        """Write one line: `event` and its fields."""
        if self._file is None:
            return
        line = json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n"
        try:
            self._file.write(line.encode("utf-8", "replace"))
        except OSError as error:
            self._say(f"the trace ends here: cannot write {self._path}: {error.strerror or error}")
            self.close()

    def close(self) -> None:
        """Stop tracing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
