"""Writing cache files: a whole new one, a hit on one, another trailer for one. Spec: kv §3, §4.3, §8.3.

Owns the order of writes, so that a crash at any point leaves the old file or the new one.
Must not know: when to write and what to remove.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from shared.kv.files.cache_file import MOST_TEXT_BYTES, TEXT_AT, CacheFile, describe
from shared.kv.files.checksum import Checksum, Sidecar, remove_sidecar, write_sidecar
from shared.kv.files.header import Extension, Header
from shared.kv.files.replacement import Replacement

_PIECE: Final = 8 << 20


def write_cache_file(
    path: Path,
    header: Header,
    text: bytes,
    payload: Iterable[bytes | memoryview],
    trailer: bytes = b"",
    *,
    durable: bool = True,
    checksum: bool = True,
    new: bool = False,
) -> CacheFile:
    """Write `path` and its sidecar; until all of it is there the old file stays.

    `durable` flushes to the disk before the new file can be seen; a `new` one takes nobody's place. Raises
    ValueError when `payload` does not come to `header.payload_bytes` or the parts do not fit together, and
    OSError (no space, no permission; FileExistsError).
    """
    _check_parts(header, text)
    file = CacheFile(path, header, len(text), TEXT_AT + len(text) + header.payload_bytes + len(trailer))
    covered = Checksum() if checksum else None
    with Replacement(path, durable=durable) as replacement:
        replacement.file.write(header.encode() + struct.pack("<I", len(text)))
        replacement.file.write(text)
        if covered:
            covered.update(text)
        _write_payload(replacement, payload, header.payload_bytes, covered)
        replacement.file.write(trailer)
        # An old sidecar must not outlive the file that it is about.
        if not (new and path.exists()):
            remove_sidecar(path)
        replacement.commit(new=new)
    if covered:
        # The file is complete; without a sidecar it is only less well guarded.
        with contextlib.suppress(OSError):
            write_sidecar(path, Sidecar.of(file, covered))
    return file


def touch(file: CacheFile, now: float) -> CacheFile:
    """Count a hit at `now` (Unix seconds), in place and in one write. Raises OSError, CacheFileError.

    What is written follows from what the file says by now, not from what `file` remembers.
    """
    fd = os.open(file.path, os.O_RDWR)
    try:
        current = describe(fd, file.path)
        header = replace(current.header, hits=current.header.next_hits, last_used=int(now))
        os.pwrite(fd, header.encode(), 0)
        return replace(current, header=header)
    finally:
        os.close(fd)


def replace_trailer(file: CacheFile, trailer: bytes, extensions: Extension, now: float) -> CacheFile:
    """Exchange what follows the payload, in place; `extensions` are the file's flags from now on.

    A crash between the steps costs the trailer, nothing else. Raises OSError, CacheFileError, ValueError.
    """
    fd = os.open(file.path, os.O_RDWR)
    try:
        current = describe(fd, file.path)
        header = replace(current.header, extensions=extensions, last_used=int(now))
        _check_flags(extensions)
        os.ftruncate(fd, current.trailer_at)
        _write_all(fd, trailer, current.trailer_at)
        os.pwrite(fd, header.encode(), 0)
        return replace(current, header=header, size=current.trailer_at + len(trailer))
    finally:
        os.close(fd)


def _check_parts(header: Header, text: bytes) -> None:
    _check_flags(header.extensions)
    if len(text) > MOST_TEXT_BYTES:
        raise ValueError(f"a key text has at most {MOST_TEXT_BYTES} bytes, not {len(text)}")


def _check_flags(extensions: Extension) -> None:
    both = Extension.TOOL_MAP | Extension.TITLE
    if extensions & both == both:
        raise ValueError("a title must follow the payload at once: no file has a tool map and a title")


def _write_payload(
    replacement: Replacement, payload: Iterable[bytes | memoryview], announced: int, checksum: Checksum | None
) -> None:
    left = announced
    for piece in _pieces(payload):
        left -= len(piece)
        if left < 0:
            break
        replacement.file.write(piece)
        if checksum:
            checksum.update(piece)
        replacement.hand_over()
    if left:
        found = "more" if left < 0 else f"only {announced - left}"
        raise ValueError(f"the header announces {announced} payload bytes but there are {found}")


def _pieces(payload: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """The payload in pieces that are worth handing to the disk one by one."""
    for chunk in payload:
        view = memoryview(chunk).cast("B")
        for at in range(0, len(view), _PIECE):
            yield view[at : at + _PIECE]


def _write_all(fd: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        count = os.pwrite(fd, view, at)
        view, at = view[count:], at + count
