"""Which files go on from which: their texts begin with the other's text. Spec: kv §6.

Owns what was found out about the texts. Must not know: scores, budgets.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from shared.errors import CacheFileError
from shared.kv.files.cache_file import TEXT_AT, CacheFile
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.header import Reason
from shared.kv.store.prefix_hash import prefix_names

_END_BYTES: Final = 8
# For more pieces of a text all of it is read.
_MOST_SEEKS: Final = 8

Lengths = npt.NDArray[np.int64]
Ends = npt.NDArray[np.uint64]


class Lineage:
    """Remembers which files go on from each cold file. Any thread.

    A name stands for its text, so what was found out holds for as long as the name does, and each two texts
    are compared once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cold: dict[str, tuple[int, int]] = {}  # length and end of each cold text
        self._families: dict[str, set[str]] = {}  # by cold file, the files that go on from it
        self._compared: set[str] = set()  # files that were held against all of `_cold`
        self._ways: dict[str, int] = {}  # by cold file, as long as its family stays the same

    def branches(self, files: Collection[CacheFile]) -> dict[str, int]:
        """In how many different ways other files go on from each cold file, by name: 0, 1, or 2 for several.

        Reads only what is new since the last call, and the places where a new cold text might end in others.
        """
        present = {file.name: file for file in files}
        cold = [file for file in files if file.header.reason is Reason.COLD]
        with self._lock:
            self._forget(present.keys(), {file.name for file in cold})
            added = self._add(file for file in cold if file.name not in self._cold)
            new, every = _Beginnings(added), _Beginnings(self._cold)
            for name, file in present.items():
                known = name in self._compared
                if (added or not known) and self._compare(file, new if known else every):
                    self._compared.add(name)
            return {file.name: self._count(file.name, present) for file in cold}

    def _forget(self, present: Collection[str], cold: Collection[str]) -> None:
        for name in self._cold.keys() - cold:
            del self._cold[name], self._families[name]
            self._ways.pop(name, None)
        gone = self._compared.difference(present)
        self._compared -= gone
        for name, family in self._families.items():
            if not family.isdisjoint(gone):
                family.difference_update(gone)
                self._ways.pop(name, None)

    def _add(self, files: Iterable[CacheFile]) -> dict[str, tuple[int, int]]:
        added = {}
        for file in files:
            ends = _ends(file, np.array([file.text_bytes]))
            if ends is not None:
                added[file.name] = file.text_bytes, int(ends[0])
        self._cold |= added
        self._families |= {name: set() for name in added}
        return added

    def _compare(self, file: CacheFile, beginnings: _Beginnings) -> bool:
        """Enter `file` where it goes on from one of `beginnings`; False if it could not be read."""
        likely = beginnings.likely(file)
        if not likely:
            return likely is not None
        names = _names(file, likely.values())
        if names is None:
            return False
        for name, length in likely.items():
            if names[length] == name:
                self._families[name].add(file.name)
                self._ways.pop(name, None)
        return True

    def _count(self, name: str, present: Mapping[str, CacheFile]) -> int:
        """One way if all texts of the family are beginnings of the longest."""
        family = [present[member] for member in self._families.get(name, ())]
        if len(family) < 2:
            return len(family)
        if name not in self._ways:
            longest = max(family, key=lambda file: file.text_bytes)
            chain = _names(longest, {file.text_bytes for file in family}) or {}
            one = all(chain.get(file.text_bytes) == file.name for file in family)
            self._ways[name] = 1 if one else 2
        return self._ways[name]


class _Beginnings:
    """Texts that others may begin with, by name: their lengths in bytes and their last bytes."""

    def __init__(self, texts: Mapping[str, tuple[int, int]]) -> None:
        self._names = sorted(texts, key=lambda name: texts[name])
        self._lengths: Lengths = np.array([texts[name][0] for name in self._names], np.int64)
        self._ends: Ends = np.array([texts[name][1] for name in self._names], np.uint64)

    def likely(self, file: CacheFile) -> dict[str, int] | None:
        """The lengths of those that end like the file's text does there, the only ones that are worth a hash;
        None if it cannot be read."""
        count = int(np.searchsorted(self._lengths, file.text_bytes))
        lengths = self._lengths[:count]
        ends = _ends(file, lengths)
        if ends is None:
            return None
        return {self._names[at]: int(lengths[at]) for at in np.flatnonzero(ends == self._ends[:count])}


def _ends(file: CacheFile, lengths: Lengths) -> Ends | None:
    """The last bytes of these beginnings of the file's text, each as a number; None if it cannot be read."""
    if not lengths.size:
        return np.zeros(0, np.uint64)
    try:
        with file.path.open("rb", buffering=0) as raw:
            if lengths.size <= _MOST_SEEKS:
                pieces = [_piece(raw.fileno(), int(length)) for length in lengths]
                return np.array([int.from_bytes(piece, "little") for piece in pieces], np.uint64)
            text = bytes(_END_BYTES) + os.pread(raw.fileno(), file.text_bytes, TEXT_AT)
    except OSError:
        return None
    if len(text) < _END_BYTES + int(lengths.max()):
        return None
    every = np.ndarray((len(text) - _END_BYTES + 1,), "<u8", text, 0, (1,))
    return every[lengths]


def _piece(fd: int, length: int) -> bytes:
    start = max(0, length - _END_BYTES)
    return os.pread(fd, length - start, TEXT_AT + start).rjust(_END_BYTES, b"\0")


def _names(file: CacheFile, lengths: Iterable[int]) -> dict[int, str] | None:
    """The names that these beginnings of the file's text have, by length; None if it cannot be read."""
    try:
        with open_cache_file(file.path) as reader:
            return dict(prefix_names(reader.text(), sorted(set(lengths))))
    except (OSError, CacheFileError):
        return None
