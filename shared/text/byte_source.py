"""Bytes that arrive in any cuts, read through a small window, with push-back.

Knows nothing of what the bytes mean. The window never grows beyond one slice and what a reader left unread,
so a reader that leaves little unread works in linear time whatever the cuts.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_SLICE: Final = 1024


class ByteSource:
    """`window[pos:]` is what may be read now; `load()` adds the next slice to it."""

    def __init__(self) -> None:
        self.window = b""
        self.pos = 0
        self._queue: deque[memoryview] = deque()
        self._record: bytearray | None = None

    def push(self, data: bytes) -> None:
        """Append `data` behind everything that is still unread."""
        if data:
            self._queue.append(memoryview(data))

    def push_back(self, data: bytes) -> None:
        """Make `data` the next bytes to read, before the unread part of the window."""
        if self._record is not None and data:
            del self._record[-len(data) :]
        if self.pos < len(self.window):
            self._queue.appendleft(memoryview(self.window[self.pos :]))
        self.window = b""
        self.pos = 0
        if data:
            self._queue.appendleft(memoryview(data))

    def load(self) -> bool:
        """Append the next slice to the window; False if there is none."""
        if not self._queue:
            return False
        view = self._queue.popleft()
        if len(view) > _SLICE:
            self._queue.appendleft(view[_SLICE:])
            view = view[:_SLICE]
        self.window = self.window[self.pos :] + bytes(view)
        self.pos = 0
        return True

    def cut(self, end: int) -> None:
        """Take `window[end:]` out of the window, to be loaded again later."""
        if end < len(self.window):
            self._queue.appendleft(memoryview(self.window[end:]))
            self.window = self.window[:end]

    def take(self, end: int) -> bytes:
        """Read up to window position `end`."""
        data = self.window[self.pos : end]
        self.pos = end
        if self._record is not None:
            self._record += data
        return data

    def record(self) -> bytearray:
        """Keep what is read from here on; the result grows with it, and shrinks with what is pushed back."""
        self._record = bytearray()
        return self._record

    def stop_record(self) -> None:
        self._record = None

    @property
    def rest(self) -> bytes:
        """The unread part of the window."""
        return self.window[self.pos :]

    @property
    def exhausted(self) -> bool:
        """Whether nothing waits behind the window."""
        return not self._queue

    def clear(self) -> None:
        """Drop everything unread."""
        self.window = b""
        self.pos = 0
        self._queue.clear()
