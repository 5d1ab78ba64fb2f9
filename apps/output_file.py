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


def check_replaceable(path: Path, *sources: Path | None) -> None:
    """As `check_writable`, for a file that is built under another name and then takes its place: it must not
    take that of a device or a pipe, nor that of one of the `sources`, which are read. Raises UsageError."""
    check_writable(path)
    if not os.access(path.absolute().parent, os.W_OK):
        raise UsageError(f"cannot write {path}: no file can be made in its folder")
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"cannot write {path}: it is no regular file")
    if any(source is not None and source.exists() and path.samefile(source) for source in sources):
        raise UsageError(f"cannot write {path}: it is what is to be read")
