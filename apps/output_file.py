"""Files that a run will write at its end: refused before the work, not after it."""

from __future__ import annotations

import os
from pathlib import Path

from shared.errors import UsageError


def check_writable(path: Path) -> None:
    """Raises UsageError if `path` cannot be written as a file. Creates and changes nothing."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no such folder")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"cannot write {path}: permission denied")
