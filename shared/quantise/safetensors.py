"""The tensors of a checkpoint in safetensors files: names, types, shapes, and their bytes on demand.

Checks every header completely before anything is read. Knows no model and decodes no number.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.errors import Ds4Error
from shared.gguf.mapping import shown

INDEX = "model.safetensors.index.json"
_MOST_HEADER_BYTES = 100_000_000  # the format's own limit
_MOST_INDEX_BYTES = 100_000_000
# Bits of one element. F4 has two elements in a byte.
_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
}  # fmt: skip


class CheckpointError(Ds4Error):
    """A checkpoint cannot be read, or is not of the model that it should be."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint. `shape` is in NumPy order, `start` counts from the file's first byte."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    nbytes: int


class Checkpoint:
    """The open files of a checkpoint folder. A context manager; reading is safe from several threads."""

    def __init__(self, folder: Path, tensors: Mapping[str, StoredTensor]) -> None:
        self.folder = folder
        self.tensors = tensors
        self._descriptors: dict[Path, int] = {}
        for path in sorted({tensor.path for tensor in tensors.values()}):
            self._descriptors[path] = os.open(path, os.O_RDONLY)

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read and check all headers. Raises CheckpointError for whatever cannot be used."""
        tensors: dict[str, StoredTensor] = {}
        for path in _files(folder):
            for tensor in _read_header(path):
                if tensor.name in tensors:
                    other = tensors[tensor.name].path.name
                    raise CheckpointError(f"tensor {shown(tensor.name)} is in {other} and in {path.name}")
                tensors[tensor.name] = tensor
        return cls(folder, tensors)

    def read(self, tensor: StoredTensor, start: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """`nbytes` of a tensor from its byte `start` on, as a fresh uint8 array."""
        assert start >= 0
        assert start + nbytes <= tensor.nbytes
        data = bytearray()
        while len(data) < nbytes:
            at = tensor.start + start + len(data)
            more = os.pread(self._descriptors[tensor.path], nbytes - len(data), at)
            if not more:
                raise CheckpointError(f"{tensor.path} became shorter while it was read")
            data += more
        return np.frombuffer(data, np.uint8)

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: those that its index lists, or all in the folder."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder: name the folder that holds the safetensors files")
    index = folder / INDEX
    if not index.exists():
        found = sorted(folder.glob("*.safetensors"))
        if not found:
            raise CheckpointError(f"{folder} holds no safetensors files")
        return found
    if index.stat().st_size > _MOST_INDEX_BYTES:
        raise CheckpointError(f"{index} is too large for an index")
    listed = _json_object(index.read_bytes(), str(index)).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise CheckpointError(f"{index} has no weight_map of file names")
    names = sorted(set(listed.values()))
    strange = [name for name in names if Path(name).name != name]
    if strange or not names:
        what = f"names {shown(strange[0])}, which is not a plain file name" if strange else "lists no files"
        raise CheckpointError(f"{index} {what}")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of the {len(names)} files of the checkpoint are missing, first {missing[0]}: "
            "finish the download"
        )
    return [folder / name for name in names]


def _read_header(path: Path) -> list[StoredTensor]:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(size - 8, _MOST_HEADER_BYTES):
            raise CheckpointError(f"{path} is not a safetensors file, or is cut off inside its header")
        header = _json_object(file.read(length), str(path))
    header.pop("__metadata__", None)
    tensors = [_entry(path, name, value, 8 + length) for name, value in header.items()]
    end = 8 + length
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.nbytes)):
        if tensor.start != end:
            raise CheckpointError(f"{path}: tensor {shown(tensor.name)} overlaps another or leaves a gap")
        end += tensor.nbytes
    if end != size:
        what = "is cut off (finish the download)" if end > size else "has bytes that belong to no tensor"
        raise CheckpointError(f"{path} {what}: its tensors end at byte {end}, the file at {size}")
    return tensors


def _entry(path: Path, name: str, value: object, data_start: int) -> StoredTensor:
    where = f"{path}: tensor {shown(name)}"
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} is not described by an object")
    dtype, shape, offsets = (
        value.get("dtype"),
        _counts(value.get("shape")),
        _counts(value.get("data_offsets")),
    )
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise CheckpointError(f"{where} has the unknown type {shown(str(dtype))}")
    if shape is None or offsets is None or len(offsets) != 2:
        raise CheckpointError(f"{where} has a shape or offsets that are not whole numbers")
    bits = prod(shape) * _BITS[dtype]
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise CheckpointError(f"{where}: {offsets[1] - offsets[0]} bytes do not hold {dtype} {shape}")
    return StoredTensor(name, dtype, tuple(shape), path, data_start + offsets[0], bits // 8)


def _counts(value: object) -> list[int] | None:
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 48 for item in value):
        return value
    return None


def _json_object(content: bytes, where: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    try:
        value = json.loads(content, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} is damaged: it holds no object")
    return value
