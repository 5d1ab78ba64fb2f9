"""One cache file as a place on disk: its name, its header, where its parts begin. Spec: kv §1, §3.

Owns the naming and the check that the declared lengths fit into the file. Must not know: stores, policies.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.errors import CacheFileError, DamagedFile
from shared.kv.files.header import HEADER_BYTES, Header

SUFFIX: Final = ".kv"
# The header and the text's length.
TEXT_AT: Final = HEADER_BYTES + 4
MOST_TEXT_BYTES: Final = 2**32 - 1

_NAME = re.compile(r"[0-9a-fA-F]{40}\.kv")


@dataclass(frozen=True, slots=True)
class CacheFile:
    """A file whose header was read and whose size holds all that it declares. Sizes in bytes.

    `name` is the one that the key text must hash to: in lower case, with its suffix.
    """

    path: Path
    header: Header
    text_bytes: int
    size: int
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Whoever ranks thousands of files asks for it again and again.
        object.__setattr__(self, "name", self.path.name.lower())

    @property
    def payload_at(self) -> int:
        return TEXT_AT + self.text_bytes

    @property
    def trailer_at(self) -> int:
        return self.payload_at + self.header.payload_bytes


def cache_name(text: bytes) -> str:
    """The name of the file whose key is `text`."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest() + SUFFIX


def is_cache_name(name: str) -> bool:
    """Whether a file of this name may belong to a store: 40 hex digits of either case and the suffix."""
    return _NAME.fullmatch(name) is not None


def read_cache_file(path: Path, *, any_abi: bool = False) -> CacheFile:
    """Read the header and check the sizes; nothing else is read.

    Raises ForeignFile (leave it alone), DamagedFile (it can never be used), FileNotFoundError and other
    OSErrors as they come. `any_abi` also takes files of older writers, whose payload cannot be resumed.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        return describe(fd, path, any_abi=any_abi)
    finally:
        os.close(fd)


def describe(fd: int, path: Path, *, any_abi: bool = False) -> CacheFile:
    """`read_cache_file` of a file that is open already; its position stays where it is."""
    size = os.fstat(fd).st_size
    head = os.pread(fd, TEXT_AT, 0)
    try:
        header = Header.decode(head, any_abi=any_abi)
        if len(head) < TEXT_AT:
            raise DamagedFile("the cache file is cut off before its text")
        (text_bytes,) = struct.unpack_from("<I", head, HEADER_BYTES)
        declared = TEXT_AT + text_bytes + header.payload_bytes
        if size < declared:
            raise DamagedFile(f"the cache file is cut off: it has {size} bytes of {declared}")
    except CacheFileError as error:
        raise type(error)(f"{path.name}: {error}") from None
    return CacheFile(path, header, text_bytes, size)
