"""The one GPU of this process, through CuPy: memory, copies, compiled kernels, the stream of all work.

Whoever makes the device hands over CuPy, or in tests what stands in for it. Must not know: models, kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt


class Device:
    """Work is done in order on one stream, which the thread that makes the device uses from then on.

    `captures`: whether it is worth trying to capture anything.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._functions: dict[tuple[str, str], Any] = {}
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self.captures = True

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        """Memory with any contents."""
        return self._cupy.empty(tuple(shape), dtype)

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        return self._cupy.zeros(tuple(shape), dtype)

    def upload(self, host: npt.NDArray[Any]) -> Any:
        """A new array with the contents of `host`."""
        return self._cupy.asarray(np.ascontiguousarray(host))

    def write(self, to: Any, host: npt.NDArray[Any]) -> None:
        """Put `host` into an array, or a contiguous part of one, of its shape and dtype."""
        self._cupy.copyto(to, self.upload(host))

    def copy(self, to: Any, values: Any) -> None:
        """Put one array of the device into another of its shape and dtype."""
        self._cupy.copyto(to, values)

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Page-locked memory of the host with any contents."""
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def send(self, to: Any, pinned: npt.NDArray[Any]) -> Any:
        """Begin to copy page-locked memory into an array of its shape and dtype. Until what is returned has
        been waited for, by `synchronize`, that memory must stay as it is."""
        self._cupy.ndarray.set(to, pinned, self.stream)
        sent = self._cupy.cuda.Event(disable_timing=True)
        sent.record()
        return sent

    def download(self, array: Any) -> npt.NDArray[Any]:
        """A copy in host memory. Waits for all work so far."""
        return np.array(self._cupy.asnumpy(array))

    def fetch(self, array: Any) -> Fetch:
        """Begin to copy `array` to the host, behind the work so far and before what follows."""
        return Fetch(self._cupy, array)

    def synchronize(self) -> None:
        """Wait for all work so far."""
        self.stream.synchronize()

    def function(self, text: str, name: str, options: tuple[str, ...]) -> Any:
        """The kernel `name` of a text; each text is compiled once."""
        found = self._functions.get((text, name))
        if found is None:
            module = self._cupy.RawModule(code=text, options=options)
            found = self._functions[text, name] = module.get_function(name)
        return found

    def capture(self, work: Callable[[], None]) -> Any:
        """The launches of `work` as a graph, to be launched as one; now none of them runs.

        Raises RuntimeError where the GPU or its driver cannot.
        """
        self.stream.begin_capture()
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # the stream must leave the capture, which failed already
                self.stream.end_capture()
            raise
        return self.stream.end_capture()

    def free(self) -> None:
        """Give memory that no array holds any more back to the system."""
        self._cupy.get_default_memory_pool().free_all_blocks()


class Fetch:
    """A copy under way to page-locked memory: reading it waits for the copy, not for work queued behind
    it."""

    def __init__(self, cupy: Any, array: Any) -> None:
        memory = cupy.cuda.alloc_pinned_memory(array.nbytes)
        self._host = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
        cupy.asnumpy(array, out=self._host, blocking=False)
        self._done: Any = cupy.cuda.Event(disable_timing=True)
        self._done.record()

    def value(self) -> npt.NDArray[Any]:
        if self._done is not None:
            self._done.synchronize()
            self._done = None
        return self._host
