"""The index of a directory of cache files: what is there, read again only where something changed.

Owns the headers of all files in memory. Not safe for threads: the store guards it. Must not know: policies,
what is inside texts and payloads. Spec: kv §3, §4.1, §13.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from shared.errors import DamagedFile, ForeignFile
from shared.kv.files.cache_file import CacheFile, is_cache_name, read_cache_file
from shared.kv.store.prefix_hash import prefix_names

# A change this soon after the last one might not show in the directory's time: some file systems keep whole
# seconds, or even ones. Where smaller parts of a second show, the time is that of the last tick of a clock.
_COARSE_NS: Final = 2_000_000_000
_TICK_NS: Final = 100_000_000
_COARSE_UNIT_NS: Final = 1_000_000


class Signature(NamedTuple):
    """What changes when a file is replaced or written to."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Signature:
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file of our format that failed its size or header check, and how."""

    path: Path
    why: str


class _Entry(NamedTuple):
    signature: Signature
    file: CacheFile | None  # None: not usable; it is not looked at again until it changes
    foreign: bool = False


class Catalog:
    """The usable cache files of `directory`, by lower-case name. `wall_ns` is the file system's clock."""

    def __init__(self, directory: Path, *, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._directory = directory
        self._wall_ns = wall_ns
        self._entries: dict[str, _Entry] = {}
        self._files: dict[str, CacheFile] = {}
        self._lengths: list[int] | None = (
            None  # all text lengths in bytes, ascending; None: to be found again
        )
        self._seen_ns: int | None = None  # the directory's time at the last scan that can be relied on
        self._changes = 0  # of our own, in work
        self._changed_ns: int | None = None  # the directory's time after the last of them, while it is fresh

    @property
    def files(self) -> Collection[CacheFile]:
        """All of them, in the order in which the scans met them."""
        return self._files.values()

    def by_name(self) -> dict[str, CacheFile]:
        """`files` as they are now, by name; a copy."""
        return dict(self._files)

    def get(self, name: str) -> CacheFile | None:
        return self._files.get(name)

    def is_foreign(self, name: str) -> bool:
        """Whether a file of that name is of another version or kind: it is to be left alone."""
        return name in self._entries and self._entries[name].foreign

    def refresh(self) -> list[Damaged]:
        """Take in what changed in the directory; returns the files found damaged, each of them once. While
        a change of our own is in work, what others do has to wait."""
        if self._changes:
            return []
        modified = self._directory.stat().st_mtime_ns
        fresh = self._is_fresh(modified)
        if modified == self._seen_ns and (modified != self._changed_ns or self._has_names()):
            if not fresh:
                self._changed_ns = None
            return []
        damaged = self._scan()
        self._seen_ns, self._changed_ns = None if fresh else modified, None
        return damaged

    def begin_change(self) -> None:
        """This process is about to change the directory, right after a `refresh`. It alone writes here, and
        tells of every change with `update` or `forget` before `end_change`."""
        self._changes += 1

    def end_change(self) -> None:
        """What was begun is done. That needs no scan, unless somebody else was at work meanwhile."""
        self._changes -= 1
        if self._changes:
            return
        self._seen_ns = None
        with contextlib.suppress(OSError):
            modified = self._directory.stat().st_mtime_ns
            if self._has_names():
                self._seen_ns = self._changed_ns = modified

    def update(self, file: CacheFile) -> None:
        """Take in that this process wrote `file`, or wrote to it."""
        try:
            signature = Signature.of(file.path.stat())
        except OSError:
            self.forget(file.name)
            return
        self._set(file.name, _Entry(signature, file))

    def forget(self, name: str) -> None:
        """Take in that a file is gone."""
        self._entries.pop(name, None)
        if self._files.pop(name, None):
            self._lengths = None

    def prefixes_of(self, rendered: bytes) -> list[CacheFile]:
        """The files whose name is the hash of a beginning of `rendered`, the longest text first."""
        if self._lengths is None:
            self._lengths = sorted({file.text_bytes for file in self._files.values()})
        found = [
            file
            for length, name in prefix_names(rendered, self._lengths)
            if (file := self._files.get(name)) is not None and file.text_bytes == length
        ]
        return found[::-1]

    def _scan(self) -> list[Damaged]:
        damaged: list[Damaged] = []
        gone = set(self._entries)
        for found, signature in self._regular_files():
            name = found.name.lower()
            gone.discard(name)
            known = self._entries.get(name)
            if known is not None and known.signature == signature:
                continue
            path, file, foreign = Path(found.path), None, False
            try:
                file = read_cache_file(path)
            except FileNotFoundError:
                gone.add(name)
                continue
            except DamagedFile as error:
                damaged.append(Damaged(path, str(error)))
            except (ForeignFile, OSError):
                foreign = True
            self._set(name, _Entry(signature, file, foreign))
        for name in gone:
            self.forget(name)
        return damaged

    def _is_fresh(self, modified: int) -> bool:
        """Whether another change of the directory might give it the same time once more."""
        return self._wall_ns() - modified < (_TICK_NS if modified % _COARSE_UNIT_NS else _COARSE_NS)

    def _has_names(self) -> bool:
        """Whether what is known are the names in the directory; takes no look at the files themselves."""
        seen = 0
        for name in os.listdir(self._directory):
            if name in self._entries or (is_cache_name(name) and name.lower() in self._entries):
                seen += 1
            elif is_cache_name(name) and stat.S_ISREG(os.lstat(self._directory / name).st_mode):
                return False
        return seen == len(self._entries)

    def _regular_files(self) -> Iterator[tuple[os.DirEntry[str], Signature]]:
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not is_cache_name(entry.name):
                    continue
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield entry, Signature.of(status)

    def _set(self, name: str, entry: _Entry) -> None:
        before = self._files.get(name)
        self._entries[name] = entry
        if entry.file is None:
            self._files.pop(name, None)
        else:
            self._files[name] = entry.file
        if before is None or entry.file is None or before.text_bytes != entry.file.text_bytes:
            self._lengths = None
