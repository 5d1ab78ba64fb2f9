"""What was found, in a JSON file that is whole after every addition: a run that is cut off leaves it.

Must not know: what is measured.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Results:
    """A tree of named values, written to `path` as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.values: dict[str, Any] = {}

    def put(self, *names: str, value: Any) -> None:
        """Set the value below these names, and write the file."""
        *parents, last = names
        place = self.values
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(self.values, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self._path)


def read(path: Path) -> dict[str, Any]:
    """What a file holds; nothing, where none was written."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
