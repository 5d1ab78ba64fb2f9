"""How raw tensor bytes reach MLX: adopted in place from the file's memory map, or copied.

Adoption needs unified memory (Metal) and whole pages; any tensor that cannot be adopted is copied, and one
note says so. Must not know: what a tensor is for.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from shared.gguf.reader import GgufFile

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.unsignedinteger[Any]]
Importer = Callable[[Words], mx.array]

LARGEST_DIMENSION = 2**31 - 1  # MLX counts an axis in 32 bits
_WORD_SIZES = (8, 4, 2, 1)


def import_in_place(words: Words) -> mx.array:
    """The same memory as an MLX array. Raises ValueError where the platform cannot share it."""
    return mx.from_dlpack(words, copy=False)


class TensorBytes:
    """Hands out tensors' bytes as MLX arrays. `notes` gets one line when an adoption had to be given up;
    `touch` has the CPU read adopted bytes from the disk, so that the GPU never waits for it."""

    def __init__(
        self,
        gguf: GgufFile,
        *,
        adopt: bool,
        notes: list[str],
        touch: bool = True,
        import_words: Importer = import_in_place,
    ) -> None:
        self._gguf = gguf
        self._adopt = adopt
        self._notes = notes
        self._touch = touch
        self._import = import_words
        self._warned = False

    def rows(self, name: str, shape: tuple[int, ...]) -> mx.array:
        """Bytes of tensor `name` as uint8 of `shape`, rows one after the other. An adopted array shows the
        file itself: it must not be written, nor become the only reference to its memory, which MLX would
        take as leave to write there."""
        data = self._gguf.data(name)
        if self._adopt:
            try:
                adopted = self._adopted(data, self._gguf.tensors[name].offset, shape)
            except (BufferError, OverflowError, RuntimeError, TypeError, ValueError) as reason:
                if not self._warned:
                    self._warned = True
                    self._notes.append(f"copying weights that cannot be mapped ({name}: {reason})")
            else:
                if self._touch:
                    touch_pages(data)
                return adopted
        return mx.array(data.reshape(shape))

    def _adopted(self, data: Bytes, offset: int, shape: tuple[int, ...]) -> mx.array:
        """A view into the whole pages around `data`, which begins at `offset` of the file.

        Pages are imported as one axis of words as wide as the layout allows: a tensor of more than 2^31 bytes
        still fits, and MLX, which makes any input of a strided view one axis first, has nothing to do.
        """
        page = mmap.PAGESIZE
        inner = data.ctypes.data % page
        if inner != offset % page:
            raise ValueError("the file is not mapped from a page on")
        size = next(size for size in _WORD_SIZES if not inner % size and not shape[-1] % size)
        count = -(-(inner + data.nbytes) // page) * page // size
        if count > LARGEST_DIMENSION:
            raise ValueError(f"{data.nbytes} bytes are too many for one array")
        words = self._import(np.asarray(_MappedWords(data, data.ctypes.data - inner, count, size)))
        packed = (*shape[:-1], shape[-1] // size)
        strides = [int(np.prod(packed[axis + 1 :], dtype=np.int64)) for axis in range(len(packed))]
        return mx.as_strided(words, packed, strides, inner // size).view(mx.uint8)


def touch_pages(data: Bytes) -> int:
    """Read the first byte of `data` and of each further page, in order; returns their sum."""
    until_next = mmap.PAGESIZE - data.ctypes.data % mmap.PAGESIZE
    return int(data[:1].sum(dtype=np.int64)) + int(data[until_next :: mmap.PAGESIZE].sum(dtype=np.int64))


class _MappedWords:
    """`count` words of `size` bytes from `address` on, read-only, as NumPy takes them over.

    The last page of a map reaches past the end of its file and is there as a whole, but no slice of the map
    gets at it. A map made anew, private so that it may claim to be writable, would: on a Mac the memory that
    a GPU gets to write of it becomes a second copy of the file.
    """

    def __init__(self, owner: Bytes, address: int, count: int, size: int) -> None:
        self.owner = owner  # keeps the memory mapped
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": (count,),
            "typestr": f"<u{size}" if size > 1 else "|u1",
        }
