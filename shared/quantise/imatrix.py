"""Importance of the columns of expert matrices, as collected while a model read text: the legacy `.dat` file.

Spec: model §7 (file) and §8 (lookup). Must not know: how it is collected, what is done with it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shared.errors import Ds4Error
from shared.gguf.mapping import shown
from shared.kv.files.replacement import Replacement

Array = npt.NDArray[np.float32]

_LONGEST_NAME = 4096
_NUMBER = struct.Struct("<i")
_CALLS = 1  # of each tensor; the values are means already


class ImatrixError(Ds4Error):
    """A file of importances cannot be used."""


@dataclass(frozen=True, slots=True)
class Imatrix:
    """A file of importances. `entries` are float32 by tensor name; `digest` tells this file from others."""

    path: Path
    entries: dict[str, Array]
    dataset: str
    chunks: int
    digest: str

    def of(self, name: str, expert: int, columns: int, experts: int) -> Array | None:
        """The importance [columns] for one expert of tensor `name`; None where the file has none. Raises
        ImatrixError when what it has is of another size."""
        for alone in (f"{name}.expert.{expert}", f"{name}.expert_{expert}"):
            if alone in self.entries:
                return self._sized(alone, columns)
        if name not in self.entries:
            return None
        return self._sized(name, columns * experts)[expert * columns : (expert + 1) * columns]

    def _sized(self, name: str, count: int) -> Array:
        entry = self.entries[name]
        if entry.size != count:
            raise ImatrixError(
                f"{self.path} has {entry.size} values for {shown(name)}, expected {count}: "
                "is it of another model?"
            )
        return entry


def read_imatrix(path: Path) -> Imatrix:
    """Read and check a whole file. Raises ImatrixError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ImatrixError(f"cannot read the importance file {path}: {error.strerror or error}") from None
    reader = _Reader(path, content)
    entries: dict[str, Array] = {}
    for _ in range(reader.count("the number of entries", 12)):
        name = reader.text("a name")
        reader.number(f"the calls of {shown(name)}")
        values = reader.floats(name)
        if name in entries:
            raise reader.wrong(f"{shown(name)} occurs twice")
        entries[name] = values
    chunks = reader.number("the number of chunks")
    dataset = reader.text("the name of the dataset")
    if reader.at != len(content):
        raise reader.wrong(f"{len(content) - reader.at} bytes follow its end")
    return Imatrix(path, entries, dataset, chunks, hashlib.sha256(content).hexdigest())


def write_imatrix(
    path: Path, entries: Iterable[tuple[str, Array]], count: int, *, dataset: str, chunks: int
) -> None:
    """Write a file of `count` entries, each a tensor's name and its values float32 [experts * columns], which
    is seen under its name only when it is whole and on the disk. `chunks` is how many batches were collected
    from the text called `dataset`.

    Raises ImatrixError for values that no reader would take, OSError; either way nothing is left behind.
    """
    with Replacement(path, private=False) as new:
        new.file.write(_NUMBER.pack(count))
        written = 0
        for name, values in entries:
            if not np.isfinite(values).all() or (values < 0).any():
                raise ImatrixError(f"the importances of {shown(name)} are negative or not finite")
            new.file.write(_text(name) + _NUMBER.pack(_CALLS) + _NUMBER.pack(values.size))
            new.file.write(values.astype("<f4", copy=False).tobytes())
            written += 1
        if written != count:
            raise ValueError(f"{written} entries were given, not {count}")
        new.file.write(_NUMBER.pack(chunks) + _text(dataset))
        new.commit()


def imatrix_bytes(sizes: Iterable[tuple[str, int]], dataset: str) -> int:
    """The size of a file with entries of these names and numbers of values."""
    entries = sum(len(_text(name)) + 2 * _NUMBER.size + 4 * size for name, size in sizes)
    return _NUMBER.size + entries + _NUMBER.size + len(_text(dataset))


def _text(text: str) -> bytes:
    """A length and the bytes; what is no Unicode, as in a file's name, becomes `?`."""
    content = text.encode("utf-8", "replace")[:_LONGEST_NAME].decode("utf-8", "ignore").encode()
    return _NUMBER.pack(len(content)) + content


class _Reader:
    def __init__(self, path: Path, content: bytes) -> None:
        self.at = 0
        self._path = path
        self._content = content

    def wrong(self, reason: str) -> ImatrixError:
        return ImatrixError(f"{self._path} is no file of importances, or damaged: {reason}")

    def _take(self, nbytes: int, what: str) -> bytes:
        part = self._content[self.at : self.at + nbytes]
        if len(part) != nbytes:
            raise self.wrong(f"it ends inside {what}")
        self.at += nbytes
        return part

    def number(self, what: str) -> int:
        value: int = _NUMBER.unpack(self._take(_NUMBER.size, what))[0]
        if value < 0:
            raise self.wrong(f"{what} is {value}")
        return value

    def count(self, what: str, least_bytes: int) -> int:
        """A number of things that take at least so many bytes each in what follows."""
        value = self.number(what)
        if value * least_bytes > len(self._content) - self.at:
            raise self.wrong(f"{what} is {value}, more than it can hold")
        return value

    def text(self, what: str) -> str:
        length = self.count(f"the length of {what}", 1)
        if length > _LONGEST_NAME:
            raise self.wrong(f"the length of {what} is {length}")
        try:
            return self._take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"{what} is not UTF-8") from None

    def floats(self, name: str) -> Array:
        size = self.count(f"the number of values of {shown(name)}", 4)
        values = np.frombuffer(self._take(4 * size, shown(name)), "<f4").astype(np.float32)
        if not np.isfinite(values).all() or (values < 0).any():
            raise self.wrong(f"{shown(name)} has values that are negative or not finite")
        return values
