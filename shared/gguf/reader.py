"""A memory-mapped reader of GGUF version 3 files: metadata, the tensor directory, and views of tensor data.

Reads the header only and checks every count, length and offset against the file before it is used. Knows no
model: which keys and tensors must be there is somebody else's business.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

import numpy as np
import numpy.typing as npt

from shared.gguf.cursor import Cursor, Malformed
from shared.gguf.directory import TensorInfo, read_directory
from shared.gguf.mapping import map_file, refusal, shown
from shared.gguf.types import TensorType, ValueType
from shared.gguf.values import MetadataValue, ValueReader

__all__ = ["GgufFile", "MetadataValue", "TensorInfo"]

VERSION = 3
DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"
# A header with the real vocabulary takes about 7 MiB. These limits bound memory and time on hostile files.
HEADER_LIMIT = 64 << 20
MOST_ENTRIES = 65536


class GgufFile:
    """An open GGUF file (spec: model §1.3), made by `open`. A context manager."""

    def __init__(self, path: Path, mapping: mmap.mmap) -> None:
        self.path = path
        self.size = len(mapping)  # bytes of the whole file
        self.version = 0
        self.alignment = DEFAULT_ALIGNMENT
        self.metadata: Mapping[str, MetadataValue] = MappingProxyType({})
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType({})
        self.metadata_end = 0  # the byte behind the last metadata entry, where the tensor directory begins
        self.notes: list[str] = []  # oddities that do not prevent use
        self._map = mapping
        self._bytes: npt.NDArray[np.uint8] | None = np.frombuffer(mapping, dtype=np.uint8)
        self._types: dict[str, tuple[ValueType, ValueType | None]] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, problems: list[str] | None = None) -> GgufFile:
        """Map and check a file.

        Raises ModelFileError with every problem found. A caller that goes on to check the contents hands in
        a list: then faults of single entries are added to it, and only an unreadable header raises.
        """
        found: list[str] = [] if problems is None else problems
        file = cls(Path(path), map_file(Path(path)))
        try:
            file._read_header(found)
        except Malformed as stop:
            file.close()
            raise refusal(file.path, [str(stop), *found]) from None
        if problems is None and found:
            file.close()
            raise refusal(file.path, found)
        return file

    def metadata_type(self, key: str) -> ValueType:
        """Type of a metadata value. KeyError when the key is absent."""
        return self._types[key][0]

    def element_type(self, key: str) -> ValueType | None:
        """Element type of a metadata array, None for anything else. KeyError when the key is absent."""
        return self._types[key][1]

    def header(self) -> npt.NDArray[np.uint8]:
        """The bytes before the first tensor's data, uint8 [n]: a view like those of `data`. Raises ValueError
        when the file is closed."""
        if self._bytes is None:
            raise ValueError("the GGUF file is closed")
        return self._bytes[: min((info.offset for info in self.tensors.values()), default=self.size)]

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor, uint8 [nbytes]: a read-only view of the map, nothing is copied.

        KeyError when there is no such tensor, ValueError when its type is unknown or the file is closed.
        """
        info = self.tensors[name]
        if info.type is TensorType.UNKNOWN:
            raise ValueError(f"tensor {shown(name)} has the unknown type {info.type_id}")
        if self._bytes is None:
            raise ValueError("the GGUF file is closed")
        return self._bytes[info.offset : info.offset + info.nbytes]

    def release(self, name: str) -> None:
        """Let go of the memory that reading a tensor's data took, after a copy was made of it; where it is
        read again, it comes from the file again. KeyError when there is no such tensor."""
        info = self.tensors[name]
        first = -(-info.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = (info.offset + info.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
        if whole > 0 and self._bytes is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, whole)

    def close(self) -> None:
        """Let go of the map. Views handed out by `data` stay valid; the last one to die unmaps the file."""
        self._bytes = None
        try:
            self._map.close()
        except BufferError:  # a view still lives
            return

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_header(self, problems: list[str]) -> None:
        cursor = Cursor(self._map, 4, HEADER_LIMIT)
        self.version = cursor.u32("the version")
        if self.version != VERSION:
            swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
            what = "big-endian" if swapped == VERSION else f"version {self.version}"
            raise Malformed(f"it is a {what} GGUF file: only little-endian version {VERSION} is read")
        tensor_count = cursor.u64("the tensor count")
        key_count = cursor.u64("the metadata count")
        # The shortest metadata entry takes 13 bytes, the shortest tensor entry 32.
        for count, least, noun in ((key_count, 13, "metadata entries"), (tensor_count, 32, "tensors")):
            if count > MOST_ENTRIES or count * least > self.size:
                raise Malformed(f"the header announces {count} {noun}: the file is damaged")
        self._read_metadata(cursor, key_count, problems)
        self.metadata_end = cursor.position
        tensors = read_directory(cursor, tensor_count, self.alignment, problems, self.notes)
        self.tensors = MappingProxyType(tensors)

    def _read_metadata(self, cursor: Cursor, count: int, problems: list[str]) -> None:
        values: dict[str, MetadataValue] = {}
        reader = ValueReader(cursor, problems)
        for number in range(count):
            key = cursor.name(f"metadata key {number}")
            value_type = reader.value_type(key)
            value, element = reader.read(key, value_type)
            if key in values:
                problems.append(f"the metadata key {shown(key)} occurs twice")
                continue
            values[key] = value
            self._types[key] = (value_type, element)
        self.metadata = MappingProxyType(values)
        alignment = values.get(ALIGNMENT_KEY)
        if isinstance(alignment, int) and alignment and self.metadata_type(ALIGNMENT_KEY) is ValueType.UINT32:
            self.alignment = alignment
