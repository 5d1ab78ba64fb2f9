"""Numbers from a stream that may hold less than it was said to.

Allocates only what was announced and, where the stream knows its own size, what that can hold.
Must not know: what the numbers mean. Spec: kv §2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from shared.errors import PayloadDamaged

_READ_CHUNK = 8 << 20
_Number = TypeVar("_Number", bound=np.generic)


@runtime_checkable
class SizedStream(Protocol):
    """A file that knows how many bytes it still has; what is announced beyond them is not believed."""

    remaining: int


class PayloadReader:
    """Reads from `file`, never past the announced size, in bounded pieces into the arrays themselves.

    `remaining` bytes of the payload are to come. Raises PayloadDamaged where there are fewer.
    """

    def __init__(self, file: BinaryIO, payload_bytes: int) -> None:
        self._file = file
        self.remaining = payload_bytes

    def require(self, count: int) -> None:
        """Check that `count` bytes more were announced, and can be there."""
        left = self._file.remaining if isinstance(self._file, SizedStream) else count
        if count > min(self.remaining, left):
            raise PayloadDamaged("the saved session is cut off: its payload is truncated")

    def words(self, count: int) -> npt.NDArray[np.uint32]:
        return self._fill(np.empty(count, "<u4")).astype(np.uint32, copy=False)

    def floats(self, count: int) -> npt.NDArray[np.float32]:
        return self._fill(np.empty(count, "<f4")).astype(np.float32, copy=False)

    def _fill(self, array: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        self.require(array.nbytes)
        view, filled = bytes_of(array), 0
        while filled < array.nbytes:
            count = self._read_into(view[filled : filled + _READ_CHUNK])
            if not count:
                raise PayloadDamaged("the saved session is cut off: its payload could not be read")
            filled += count
        self.remaining -= array.nbytes
        return array

    def _read_into(self, view: memoryview) -> int:
        read_into: Callable[[memoryview], int] | None = getattr(self._file, "readinto", None)
        if read_into is not None:
            return read_into(view)
        piece = self._file.read(len(view))
        view[: len(piece)] = piece
        return len(piece)


def bytes_of(array: npt.NDArray[np.generic]) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data
