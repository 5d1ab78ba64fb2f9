"""API keys: where they come from, and whether a request shows one of them.

Owns the comparison, which takes the same time for every wrong key. A key never reaches a log line or an
answer.
"""

from __future__ import annotations

import hmac
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from apps.option_file import read_option_file
from shared.errors import UsageError


def checked_key(text: str, source: str) -> bytes:
    """A key as it will be compared. Raises UsageError, which names `source` and not the key, for what no
    header could carry."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(f"{source}: a key is one word of printable ASCII characters")
    return text.encode("ascii")


def read_key_file(path: Path) -> list[bytes]:
    """The keys in a file, one a line; empty lines and lines that begin with `#` are skipped. Raises
    UsageError for a file that cannot be read or holds none."""
    text = read_option_file("--api-key-file", path).decode("utf-8-sig", "replace")
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    keys = [
        checked_key(line, f"--api-key-file {path}, line {number}")
        for number, line in lines
        if line and not line.startswith("#")
    ]
    if not keys:
        raise UsageError(f"--api-key-file {path}: no key in it, write one a line")
    return keys


def others_can_read(path: Path) -> bool:
    """Users besides the owner may read the file."""
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def shown_keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """What a request shows as its key: `Authorization: Bearer KEY`, or `x-api-key: KEY`."""
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()


def is_known(shown: bytes, keys: Collection[bytes]) -> bool:
    """`shown` is one of `keys`. Compares with all of them, so that the time tells nothing."""
    matches = [hmac.compare_digest(shown, key) for key in keys]
    return any(matches)
