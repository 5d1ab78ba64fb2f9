"""The lines typed in earlier chats, newest kept. Knows a file, no terminal.

One JSON string per line, so that an entry may span lines. A history that cannot be read or written is
no reason to stop a chat.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

HISTORY_ENTRIES = 512
_LONGEST_FILE = 16 << 20


def history_path() -> Path:
    """DS4_HISTORY, else a file in the user's data directory."""
    if chosen := os.environ.get("DS4_HISTORY"):
        return Path(chosen)
    import platformdirs

    return platformdirs.user_data_path("ds4") / "history"


class PromptHistory(History):
    """Prompt history in `path`, mode 0600, rewritten as a whole after each entry."""

    def __init__(self, path: Path, limit: int = HISTORY_ENTRIES) -> None:
        super().__init__()
        self._path = path
        self._limit = limit
        self._entries = _read(path)[-limit:]

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._entries)

    def store_string(self, string: str) -> None:
        self._entries = [*self._entries, string][-self._limit :]
        try:
            self._write()
        except OSError:
            return

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp creates the file with mode 0600.
        descriptor, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".history-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in self._entries)
        os.replace(temporary, self._path)


def _read(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _LONGEST_FILE:
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [entry for entry in map(_entry, lines) if entry is not None]


def _entry(line: str) -> str | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
