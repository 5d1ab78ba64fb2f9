"""Reading a cache file: its text, its payload as a stream, its trailers, and whether the checksum holds.

Everything comes from one open file, so a file that is replaced meanwhile is still read as a whole. Reads in
bounded pieces, never past the size that was found when it was opened.
Must not know: what a payload holds, which file to read. Spec: kv §4.2.
"""

from __future__ import annotations

import io
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from shared.errors import DamagedFile
from shared.kv.files.cache_file import TEXT_AT, CacheFile, describe
from shared.kv.files.checksum import Checksum, Sidecar, read_sidecar
from shared.kv.files.header import Extension
from shared.kv.files.trailers import DEFAULT_ID_LIMIT, declared_entries, read_title, read_tool_map

_CHUNK = 1 << 20


class PayloadStream(io.RawIOBase, BinaryIO):
    """One part of the file, above all the payload, from front to back; `remaining` bytes are to come.

    Feeds a checksum on the way.
    """

    def __init__(self, raw: io.FileIO, start: int, length: int, checksum: Checksum | None) -> None:
        super().__init__()
        self._raw = raw
        self._at = start
        self._checksum = checksum
        self.remaining = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill `buffer` as far as bytes are at hand; 0 at the end, or where the file was cut off since."""
        view = memoryview(buffer).cast("B")[: self.remaining]
        # The trailers are read through the same file.
        self._raw.seek(self._at)
        count = self._raw.readinto(view) if view else 0
        if self._checksum:
            self._checksum.update(view[:count])
        self._at += count
        self.remaining -= count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        """`size` bytes, fewer only at the end; everything that is left without a `size`."""
        wanted = self.remaining if size is None or size < 0 else min(size, self.remaining)
        content = bytearray()
        while len(content) < wanted:
            piece = bytearray(min(_CHUNK, wanted - len(content)))
            count = self.readinto(piece)
            if not count:
                break
            content += memoryview(piece)[:count]
        return bytes(content)


class CacheReader:
    """An open cache file. Use as a context manager; `file` says what it is."""

    def __init__(self, raw: io.FileIO, file: CacheFile) -> None:
        self._raw = raw
        self.file = file
        self._text: bytes | None = None
        self._sidecar: Sidecar | None = None
        self._checksum: Checksum | None = None
        self._stream: PayloadStream | None = None

    def text(self) -> bytes:
        """The key text. Raises DamagedFile when the file was cut off since it was opened."""
        if self._text is None:
            text = PayloadStream(self._raw, TEXT_AT, self.file.text_bytes, None).read()
            if len(text) < self.file.text_bytes:
                raise DamagedFile(f"{self.file.path.name}: the cache file is cut off within its text")
            self._text = text
        return self._text

    def payload(self) -> PayloadStream:
        """The payload from its first byte on. The checksum is of what the latest stream reads."""
        sidecar = read_sidecar(self.file.path)
        self._sidecar = sidecar if sidecar and sidecar.covers(self.file) else None
        self._checksum = Checksum() if self._sidecar else None
        if self._checksum:
            self._checksum.update(self.text())
        self._stream = PayloadStream(
            self._raw, self.file.payload_at, self.file.header.payload_bytes, self._checksum
        )
        return self._stream

    def verify_checksum(self) -> bool | None:
        """Whether text and payload are those that were written; None when no sidecar tells.

        Reads what `payload()` has not been read of.
        """
        stream = self._stream or self.payload()
        if self._sidecar is None or self._checksum is None:
            return None
        scratch = bytearray(_CHUNK)
        while stream.readinto(scratch):
            pass
        return self._checksum.hexdigest() == self._sidecar.digest

    def tool_map(self, limit_ids: int = DEFAULT_ID_LIMIT) -> dict[str, bytes]:
        """The blocks by tool id, as far as they can be read; empty without a map."""
        if not self.file.header.extensions & Extension.TOOL_MAP:
            return {}
        return read_tool_map(self._trailer(), limit_ids)

    def declared_calls(self) -> int:
        """How many calls the tool map says it holds; the map may have lost its end."""
        if not self.file.header.extensions & Extension.TOOL_MAP:
            return 0
        return declared_entries(self._trailer())

    def title(self) -> bytes | None:
        """The session's title; None when the file has none. Raises DamagedFile when it is cut off."""
        if not self.file.header.extensions & Extension.TITLE:
            return None
        return read_title(self._trailer())

    def _trailer(self) -> BinaryIO:
        start = self.file.trailer_at
        return PayloadStream(self._raw, start, self.file.size - start, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()


def open_cache_file(path: Path, *, any_abi: bool = False) -> CacheReader:
    """Open `path` and check its header and sizes. Raises what `read_cache_file` raises."""
    raw = io.FileIO(path, "rb")
    try:
        return CacheReader(raw, describe(raw.fileno(), path, any_abi=any_abi))
    except BaseException:
        raw.close()
        raise
