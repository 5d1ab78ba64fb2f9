"""A saved payload in memory, as the pieces that a session wrote.

Must not know: what they hold.
"""

from __future__ import annotations

import io
from typing import BinaryIO


class Chunks(io.RawIOBase, BinaryIO):
    """A file that keeps what is written to it in `pieces`, copied once: the session goes on meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        piece = content if isinstance(content, bytes) else bytes(memoryview(content).cast("B"))
        self.pieces.append(piece)
        self.size += len(piece)
        return len(piece)
