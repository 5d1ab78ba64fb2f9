"""Files handed over for a measurement: read whole, refused in one line. Knows none of their formats."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path

from shared.errors import UsageError

LARGEST_FILE = 64 << 20


def read_bytes(path: Path, what: str, largest: int = LARGEST_FILE) -> bytes:
    """The contents of a regular file of at most `largest` bytes. Raises UsageError, which calls it `what`."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"cannot read {what} {path}: it is no regular file")
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise UsageError(f"cannot read {what} {path}: {error.strerror or error}") from None
    if len(content) > largest:
        raise UsageError(f"cannot read {what} {path}: it is larger than {largest >> 20} MiB")
    return content


def read_lines(path: Path, what: str) -> list[str]:
    """The lines of a UTF-8 text without their ends; only a newline ends a line, and a byte order mark before
    the first counts as nothing. Raises UsageError."""
    content = read_bytes(path, what).removeprefix(BOM_UTF8)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{what} {path}, line {line}: it is not UTF-8") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def beside(path: Path, name: str) -> Path:
    """A file that the file at `path` names: in its folder or, if there is none, in the working folder."""
    found = path.parent / name
    return found if found.exists() else Path(name)
