"""Writing GGUF version 3 files: header, aligned tensor data streamed from wherever they come, atomically.

The counterpart of `reader`: knows the format, no model.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from shared.gguf.directory import tensor_bytes
from shared.gguf.reader import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, VERSION
from shared.gguf.types import SCALAR_CODES, TensorType, ValueType

DataSource: TypeAlias = (
    "bytes | memoryview | npt.NDArray[np.generic] | Iterable[bytes | memoryview] "
    "| Callable[[], Iterable[bytes | memoryview]]"
)


@dataclass(frozen=True, slots=True)
class ArrayValue:
    """A metadata array: the type of its elements, and the elements (ArrayValues for nested arrays)."""

    element: ValueType
    items: Sequence[object]


MetadataEntry: TypeAlias = tuple[str, ValueType, object]


@dataclass(frozen=True, slots=True)
class TensorData:
    """A tensor to write. `dims` is in file order; `data` yields exactly the bytes of its blocks."""

    name: str
    type: TensorType
    dims: tuple[int, ...]
    data: DataSource

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.type, self.dims)


def write_gguf(
    path: str | os.PathLike[str], metadata: Sequence[MetadataEntry], tensors: Sequence[TensorData]
) -> None:
    """Write a file that appears under its name only when it is complete and on disk.

    Raises ValueError for what the format cannot hold (a repeated name, a number out of range, data of the
    wrong length) and OSError from the file system; either way nothing is left behind.
    """
    write_tensors(path, encode_header(metadata, tensors), tensors, _alignment(metadata))


def write_tensors(
    path: str | os.PathLike[str], header: bytes, tensors: Sequence[TensorData], alignment: int
) -> None:
    """Write `header`, which is padded to the alignment, and the tensors that it lists. As `write_gguf`."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(header)
            for tensor in tensors:
                _write_data(file, tensor)
                file.write(bytes(-tensor.nbytes % alignment))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def encode_header(metadata: Sequence[MetadataEntry], tensors: Sequence[TensorData]) -> bytes:
    """Everything in front of the tensor data, padded to the alignment. Tensor data follow in order, each
    padded likewise."""
    _check_distinct("metadata key", [key for key, _, _ in metadata])
    parts = [b"GGUF", struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for key, value_type, value in metadata:
        parts += [_string(key), struct.pack("<I", value_type), _value(key, value_type, value)]
    return append_directory(b"".join(parts), tensors, _alignment(metadata))


def append_directory(head: bytes, tensors: Sequence[TensorData], alignment: int) -> bytes:
    """A whole header: `head`, which is everything up to the end of the metadata, the directory of `tensors`,
    and the padding."""
    _check_distinct("tensor", [tensor.name for tensor in tensors])
    parts = [head]
    offset = 0
    for tensor in tensors:
        if not 1 <= len(tensor.dims) <= 8:
            raise ValueError(f"tensor {tensor.name!r} has {len(tensor.dims)} dimensions: 1 to 8 are possible")
        parts += [
            _string(tensor.name),
            struct.pack(f"<I{len(tensor.dims)}Q", len(tensor.dims), *tensor.dims),
            struct.pack("<IQ", tensor.type, offset),
        ]
        offset += tensor.nbytes + -tensor.nbytes % alignment
    header = b"".join(parts)
    return header + bytes(-len(header) % alignment)


def _check_distinct(noun: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise ValueError(f"a {noun} occurs twice")


def _alignment(metadata: Sequence[MetadataEntry]) -> int:
    for key, value_type, value in metadata:
        if key == ALIGNMENT_KEY:
            if value_type is not ValueType.UINT32 or not isinstance(value, int) or value < 1:
                raise ValueError(f"{ALIGNMENT_KEY} must be a UINT32 of at least 1")
            return value
    return DEFAULT_ALIGNMENT


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded


def _value(key: str, value_type: ValueType, value: object) -> bytes:
    if value_type is ValueType.STRING:
        if not isinstance(value, str):
            raise ValueError(f"{key}: a STRING must be str, not {type(value).__name__}")
        return _string(value)
    if value_type is ValueType.ARRAY:
        if not isinstance(value, ArrayValue):
            raise ValueError(f"{key}: an ARRAY must be given as ArrayValue")
        head = struct.pack("<IQ", value.element, len(value.items))
        return head + b"".join(_value(key, value.element, item) for item in value.items)
    if value_type is ValueType.BOOL:
        value = int(bool(value))
    try:
        return struct.pack(SCALAR_CODES[value_type], value)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{key}: {value!r} is no {value_type.name}: {error}") from None


def _chunks(data: DataSource) -> Iterator[bytes | memoryview]:
    if callable(data):
        data = data()
    if isinstance(data, np.ndarray):
        yield np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    elif isinstance(data, (bytes, memoryview)):
        yield data
    else:
        yield from data


def _write_data(file: BinaryIO, tensor: TensorData) -> None:
    written = 0
    for chunk in _chunks(tensor.data):
        written += file.write(chunk)
        if written > tensor.nbytes:
            break
    if written != tensor.nbytes:
        size = "more" if written > tensor.nbytes else f"only {written}"
        raise ValueError(f"tensor {tensor.name!r} takes {tensor.nbytes} bytes but was given {size}")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
