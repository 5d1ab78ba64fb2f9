"""How a file's bytes reach the device: through a fixed amount of page-locked memory, used again and again.

Must not know: files, what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ds4cuda.device import Device

Bytes = npt.NDArray[np.uint8]


class Staging:
    """Two halves of `nbytes`: one is filled while what is in the other is on its way."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self._device = device
        self._memory = device.pinned(nbytes)
        self._half = nbytes // 2
        self._sent: list[Any] = [None, None]
        self._next = 0

    def fill(self, to: Any, rows: Bytes, part: Callable[[Bytes], Bytes]) -> None:
        """Put a part of each of `rows`, uint8 [n, row bytes], into `to`, of n rows and any dtype.

        `part` takes some rows and gives the bytes that belong there, as a view: nothing else of the host is
        allocated. Returns before all has arrived. Raises ValueError for rows longer than half of the memory.
        """
        row_bytes = to.nbytes // to.shape[0]
        each = self._half // row_bytes
        if not each:
            raise ValueError(f"a row of {row_bytes} bytes does not fit {self._half} bytes of staging memory")
        for first in range(0, len(rows), each):
            self._send(to[first : first + each], part(rows[first : first + each]))

    def finish(self) -> None:
        """Wait for all that was sent."""
        for sent in self._sent:
            if sent is not None:
                sent.synchronize()
        self._sent = [None, None]

    def _send(self, to: Any, piece: Bytes) -> None:
        half, self._next = self._next, 1 - self._next
        if self._sent[half] is not None:
            self._sent[half].synchronize()
        memory = self._memory[half * self._half :][: piece.nbytes]
        np.copyto(memory.reshape(piece.shape), piece)
        self._sent[half] = self._device.send(to, memory.view(to.dtype).reshape(to.shape))
