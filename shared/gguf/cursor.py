"""A reading position in a buffer that never passes its end. Knows the byte order, nothing of the format."""

from __future__ import annotations

import mmap
import struct

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Malformed(Exception):
    """The bytes cannot be read on from here; the message says what was being read."""


class Cursor:
    """Reads little-endian values from `buffer` between `position` and the limit.

    `limit` is the smaller of the buffer's length and the largest header that is accepted; a count is always
    compared with `remaining` before anything is allocated for it.
    """

    def __init__(self, buffer: mmap.mmap | bytes, position: int, header_limit: int) -> None:
        self.buffer = buffer
        self.position = position
        self.limit = min(len(buffer), header_limit)

    @property
    def remaining(self) -> int:
        return self.limit - self.position

    def need(self, count: int, what: str) -> None:
        """Malformed unless `count` more bytes are there."""
        if count <= self.remaining:
            return
        if self.position + count <= len(self.buffer):
            raise Malformed(f"{what} reaches past the {self.limit >> 20} MiB that a header may take")
        raise Malformed(f"the file ends inside {what}, at byte {len(self.buffer)}: it is cut off or damaged")

    def unpack(self, code: struct.Struct, what: str) -> int | float:
        self.need(code.size, what)
        value: int | float = code.unpack_from(self.buffer, self.position)[0]
        self.position += code.size
        return value

    def u32(self, what: str) -> int:
        return int(self.unpack(_U32, what))

    def u64(self, what: str) -> int:
        return int(self.unpack(_U64, what))

    def take(self, count: int, what: str) -> bytes:
        self.need(count, what)
        start = self.position
        self.position += count
        return self.buffer[start : self.position]

    def name(self, what: str, longest: int = 65535) -> str:
        """A length-prefixed UTF-8 name of a key or a tensor."""
        length = self.u64(f"the length of {what}")
        if length > longest:
            raise Malformed(f"{what} has an absurd length of {length} bytes: the file is damaged")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"{what} is not UTF-8: the file is damaged") from None
