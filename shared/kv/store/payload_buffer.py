"""A saved payload in memory, in one piece: the session goes on while it is written to disk.

Must not know: what it holds.
"""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np


class PayloadBuffer(io.RawIOBase, BinaryIO):
    """A file of at most `capacity` bytes that keeps a copy of what is written to it.

    One array for all of it: new memory costs several times less in a large piece than in many small ones.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._content = np.empty(capacity, np.uint8).data
        self._size = 0

    @property
    def content(self) -> memoryview:
        """What was written so far, not copied."""
        return self._content[: self._size]

    def writable(self) -> bool:
        return True

    def write(self, content: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Keep a copy. Raises ValueError beyond the capacity: a session wrote more than it said it would."""
        view = memoryview(content).cast("B")
        end = self._size + view.nbytes
        if end > len(self._content):
            raise ValueError(f"a session wrote more than the {len(self._content)} bytes that it announced")
        self._content[self._size : end] = view
        self._size = end
        return view.nbytes
