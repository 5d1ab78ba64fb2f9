"""The checksum beside a cache file, in `<name>.kv.sum`. Spec: kv §13.

The file has no room for one. It covers the text and the payload: the header changes with every hit, and
a trailer may be replaced. A sidecar that describes another file than the one beside it says nothing.
Must not know: what text and payload mean.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import xxhash

from shared.kv.files.cache_file import CacheFile
from shared.kv.files.replacement import Replacement

SUFFIX: Final = ".sum"

_MOST_BYTES = 200
_LINE = re.compile(
    r"xxh3-128 ([0-9a-f]{32}) text_bytes=([0-9]{1,20}) payload_bytes=([0-9]{1,20}) created_at=([0-9]{1,20})\n"
)


class Checksum:
    """XXH3 with 128 bits: it finds damage, not malice, at the speed of memory."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, content: bytes | bytearray | memoryview) -> None:
        self._state.update(content)

    def hexdigest(self) -> str:
        return self._state.hexdigest()


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What a sidecar says, and of which file: its sizes in bytes and the time it was made."""

    digest: str
    text_bytes: int
    payload_bytes: int
    created_at: int

    @classmethod
    def of(cls, file: CacheFile, checksum: Checksum) -> Sidecar:
        return cls(checksum.hexdigest(), file.text_bytes, file.header.payload_bytes, file.header.created_at)

    def covers(self, file: CacheFile) -> bool:
        """False when `file` was written by someone who keeps no sidecars, over the one that this is about."""
        mine = (self.text_bytes, self.payload_bytes, self.created_at)
        return mine == (file.text_bytes, file.header.payload_bytes, file.header.created_at)


def sidecar_path(path: Path) -> Path:
    """Where the sidecar of the cache file `path` lies."""
    return path.with_name(path.name + SUFFIX)


def read_sidecar(path: Path) -> Sidecar | None:
    """The sidecar of the cache file `path`; None when there is none or it cannot be understood."""
    try:
        with sidecar_path(path).open("rb") as file:
            line = file.read(_MOST_BYTES)
    except OSError:
        return None
    match = _LINE.fullmatch(line.decode("ascii", "replace"))
    if match is None:
        return None
    digest, text_bytes, payload_bytes, created_at = match.groups()
    return Sidecar(digest, int(text_bytes), int(payload_bytes), int(created_at))


def write_sidecar(path: Path, sidecar: Sidecar) -> None:
    """Put the sidecar beside the cache file `path`, at once. Raises OSError.

    It is not flushed: one that a power failure swallows is only missing.
    """
    line = (
        f"xxh3-128 {sidecar.digest} text_bytes={sidecar.text_bytes} "
        f"payload_bytes={sidecar.payload_bytes} created_at={sidecar.created_at}\n"
    )
    with Replacement(sidecar_path(path), durable=False) as new:
        new.file.write(line.encode())
        new.commit()


def remove_sidecar(path: Path) -> None:
    """Take the sidecar of the cache file `path` away, if there is one. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        sidecar_path(path).unlink()
