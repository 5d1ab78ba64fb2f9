"""The keys of the board, read without waiting. Knows bytes of terminals, nothing of what keys do."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Final, Literal

Key = Literal["up", "down", "run", "pause", "quit"]
KeySource = Callable[[], list[Key]]

_KEYS: Final[dict[bytes, Key]] = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\r": "run",
    b"\n": "run",
    b"p": "pause",
    b"P": "pause",
    b"q": "quit",
    b"Q": "quit",
}
_MOST_AT_ONCE = 1024


def terminal_keys(descriptor: int) -> KeySource:
    """What was typed since the last call, on a terminal that gives each key at once. One that was closed
    means to quit."""
    rest = b""

    def read() -> list[Key]:
        nonlocal rest
        if not select.select([descriptor], [], [], 0)[0]:
            # Nothing follows: an escape that stands alone is no beginning of a key.
            rest = b""
            return []
        try:
            data = os.read(descriptor, _MOST_AT_ONCE)
        except OSError:
            data = b""
        if not data:
            return ["quit"]
        keys, rest = parse_keys(rest + data)
        return keys

    return read


def parse_keys(data: bytes) -> tuple[list[Key], bytes]:
    """The keys in `data`, and its end where a key may have only begun; other input is dropped."""
    keys: list[Key] = []
    position = 0
    while position < len(data):
        for sequence, key in _KEYS.items():
            if data.startswith(sequence, position):
                keys.append(key)
                position += len(sequence)
                break
        else:
            if any(sequence.startswith(data[position:]) for sequence in _KEYS):
                return keys, data[position:]
            position += 1
    return keys, b""
