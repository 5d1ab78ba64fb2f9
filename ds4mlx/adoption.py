"""How raw tensor bytes reach MLX: adopted in place from the file's memory map, or copied.

Adoption needs unified memory (Metal) and whole pages; any tensor that cannot be adopted is copied, and one
note says so. Must not know: what a tensor is for.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import cached_property

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from shared.gguf.reader import GgufFile

Bytes = npt.NDArray[np.uint8]
Importer = Callable[[Bytes], mx.array]


def import_in_place(pages: Bytes) -> mx.array:
    """The same memory as an MLX array. Raises where the platform cannot share it."""
    return mx.from_dlpack(pages, copy=False)


class TensorBytes:
    """Hands out tensors' bytes as MLX arrays. `notes` gets one line when an adoption had to be given up."""

    def __init__(
        self, gguf: GgufFile, *, adopt: bool, notes: list[str], import_pages: Importer = import_in_place
    ) -> None:
        self._gguf = gguf
        self._adopt = adopt
        self._notes = notes
        self._import = import_pages
        self._warned = False

    def rows(self, name: str, shape: tuple[int, ...]) -> mx.array:
        """Bytes of tensor `name` as uint8 of `shape`."""
        if self._adopt:
            try:
                return self._adopted(name, shape)
            except (BufferError, RuntimeError, TypeError, ValueError) as reason:
                if not self._warned:
                    self._warned = True
                    self._notes.append(f"copying weights that cannot be mapped ({name}: {reason})")
        return mx.array(self._gguf.data(name).reshape(shape))

    def _adopted(self, name: str, shape: tuple[int, ...]) -> mx.array:
        """A view of the whole pages around the tensor. Rows of one page each: a single axis of all bytes
        could exceed MLX's 32-bit dimensions."""
        page, info = mmap.PAGESIZE, self._gguf.tensors[name]
        first = info.offset // page * page
        end = -(-(info.offset + info.nbytes) // page) * page
        if end > self._gguf.size:
            raise ValueError("it ends in the file's last, incomplete page")
        pages = self._import(self._private_map[first:end].reshape(-1, page))
        strides = [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]
        return mx.as_strided(pages, shape, strides, info.offset - first)

    @cached_property
    def _private_map(self) -> Bytes:
        """The file, mapped copy-on-write: sharing an array needs one that claims to be writable."""
        return np.asarray(np.memmap(self._gguf.path, np.uint8, mode="c"))
