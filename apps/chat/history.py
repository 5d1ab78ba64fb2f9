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
_LONGEST_ENTRY = 20_000


def history_path() -> Path:
    """DS4_HISTORY, else a file in the user's data directory."""
    if chosen := os.environ.get("DS4_HISTORY"):
        return Path(chosen)
    import platformdirs

    return platformdirs.user_data_path("ds4") / "history"


class PromptHistory(History):
    """Prompt history in `path`, mode 0600, rewritten as a whole after each entry: behind whatever another
    chat has written there meanwhile. Pasted documents are left out."""

    def __init__(self, path: Path, limit: int = HISTORY_ENTRIES) -> None:
        super().__init__()
        self._path = path
        self._limit = limit
        self._entries = _read(path)[-limit:]

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._entries)

    def store_string(self, string: str) -> None:
        if len(string) > _LONGEST_ENTRY:
            return
        self._entries = [*(_read(self._path) or self._entries), string][-self._limit :]
        try:
            self._write()
        except OSError:
            return

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp creates the file with mode 0600.
        descriptor, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".history-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(entry) + "\n" for entry in self._entries)
            os.replace(temporary, self._path)
        except OSError:
            os.unlink(temporary)
            raise


def _read(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            # Of a file that grew too long, the newest part; its first line may be cut and is then skipped.
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LONGEST_FILE))
            lines = file.read(_LONGEST_FILE).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    # Of anything else, a line cut in two or blank, not even the first look of a parser is paid for.
    strings = (line for line in lines if line.startswith('"'))
    return [entry for entry in map(_entry, strings) if entry is not None]


def _entry(line: str) -> str | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
