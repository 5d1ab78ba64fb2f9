"""What the backend uses of CuPy, over NumPy arrays: kernels run in the simulator.

Enforces the rules of CUDA graphs: while a stream is captured nothing may be allocated, copied to or from
the host, waited for, or loaded for the first time, which a kernel may be as late as at its first launch;
launches are recorded and run when the graph is launched. Made by `CupyStandin(...)`, one for each test; not a
module, so that no state is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.cuda.nvrtc import CUPY_OPTIONS
from tests.ksim import RawModule

Array = npt.NDArray[Any]


class CaptureError(RuntimeError):
    """Something happened while a stream was captured that CUDA forbids then."""


class CupyStandin:
    """Pass it wherever the backend expects CuPy. `check` and `seed` are the simulator's. Of the kernels only
    those named in `runs` compute anything, if given. A device with `refuses` cannot end a capture.

    `launches` are the names of the kernels launched so far, also by graphs; `asked` what the host asked the
    device for, by those names, "graph", "copy", "upload" and "download"; `waits` how often it waited.
    """

    def __init__(
        self, *, check: str = "fast", seed: int = 0, runs: Sequence[str] | None = None, refuses: bool = False
    ) -> None:
        self._settings: dict[str, Any] = {"check": check, "seed": seed}
        self.runs = runs
        self.refuses = refuses
        self.recording: Graph | None = None
        self.launches: list[str] = []
        self.asked: list[str] = []
        self.waits = 0
        self.cuda = _Cuda(self)
        self.ndarray = _Ndarray(self)

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        self.forbid("an allocation")
        array = np.empty(shape, dtype)
        # What nobody wrote is a signalling pattern, not by chance zero.
        array.view(np.uint8).reshape(-1)[...] = 0xFF
        return array

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        self.forbid("an allocation")
        return np.zeros(shape, dtype)

    def asarray(self, host: Array) -> Array:
        self.forbid("a copy from the host")
        self.asked.append("upload")
        return np.array(host)

    def asnumpy(self, array: Array, out: Array | None = None, *, blocking: bool = True) -> Array:
        self.forbid("a copy to the host")
        self.asked.append("download")
        if blocking:
            self.waits += 1
        if out is None:
            return array.copy()
        np.copyto(out, array, casting="no")
        return out

    def copyto(self, to: Array, values: Array) -> None:
        self.forbid("a copy")
        self.asked.append("copy")
        assert to.shape == values.shape
        np.copyto(to, values, casting="no")

    def get_default_memory_pool(self) -> CupyStandin:
        return self

    def free_all_blocks(self) -> None:
        self.forbid("freeing memory")

    def RawModule(self, *, code: str, options: tuple[str, ...]) -> _Module:
        return _Module(self, RawModule(code=code, options=(*options, *CUPY_OPTIONS), **self._settings))

    def forbid(self, what: str) -> None:
        """Raises CaptureError while a stream is captured."""
        if self.recording is not None:
            raise CaptureError(f"{what} while the stream is captured")


class _Module:
    def __init__(self, cupy: CupyStandin, module: RawModule) -> None:
        self._cupy = cupy
        self._module = module

    def get_function(self, name: str) -> _Function:
        self._cupy.forbid("loading a kernel")
        return _Function(self._cupy, name, self._module.get_function(name))


class _Function:
    """A kernel, with the attribute that raises its limit of shared memory."""

    def __init__(self, cupy: CupyStandin, name: str, kernel: Any) -> None:
        self._cupy = cupy
        self._name = name
        self._kernel = kernel
        self._loaded = False

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return int(self._kernel.max_dynamic_shared_size_bytes)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value: int) -> None:
        self._cupy.forbid("changing a kernel's attributes")
        self._kernel.max_dynamic_shared_size_bytes = value

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        assert min(*grid, *block) > 0, f"{self._name} is launched over {grid} blocks of {block} threads"

        def launch() -> None:
            self._cupy.launches.append(self._name)
            if self._cupy.runs is None or self._name in self._cupy.runs:
                self._kernel(grid, block, arguments, shared_mem=shared_mem)

        if not self._loaded:
            self._cupy.forbid("the first launch of a kernel")
            self._loaded = True
        if self._cupy.recording is not None:
            self._cupy.recording.steps.append(launch)
        else:
            self._cupy.asked.append(self._name)
            launch()


class Graph:
    """Recorded launches; arrays are remembered by their addresses, so launching reads what they hold then."""

    def __init__(self, cupy: CupyStandin) -> None:
        self._cupy = cupy
        self.steps: list[Callable[[], None]] = []

    def launch(self, stream: Any = None) -> None:
        self._cupy.forbid("launching a graph")
        self._cupy.asked.append("graph")
        for step in self.steps:
            step()


class _Ndarray:
    """Methods of CuPy's arrays, where NumPy's are not enough."""

    def __init__(self, cupy: CupyStandin) -> None:
        self._cupy = cupy

    def set(self, to: Array, host: Array, stream: Any) -> None:
        self._cupy.forbid("a copy from the host")
        assert to.shape == host.shape
        np.copyto(to, host, casting="no")


class _Cuda:
    """The part that is `cupy.cuda`."""

    def __init__(self, cupy: CupyStandin) -> None:
        self._cupy = cupy
        self.runtime = _Runtime()

    def Stream(self, *, non_blocking: bool = False) -> _Stream:
        return _Stream(self._cupy)

    def Event(self, *, disable_timing: bool = False) -> _Event:
        return _Event(self._cupy)

    def alloc_pinned_memory(self, size: int) -> bytearray:
        self._cupy.forbid("an allocation")
        return bytearray(size)


class _Runtime:
    """What is asked about the GPU before anything is loaded."""

    def memGetInfo(self) -> tuple[int, int]:
        return 30 << 30, 32 << 30

    def getDeviceProperties(self, number: int) -> dict[str, object]:
        return {"name": b"Simulated GPU", "totalGlobalMem": 32 << 30}


class _Stream:
    def __init__(self, cupy: CupyStandin) -> None:
        self._cupy = cupy

    def use(self) -> _Stream:
        return self

    def synchronize(self) -> None:
        self._cupy.forbid("waiting")
        self._cupy.waits += 1

    def begin_capture(self) -> None:
        self._cupy.forbid("a second capture")
        self._cupy.recording = Graph(self._cupy)

    def end_capture(self) -> Graph:
        recorded, self._cupy.recording = self._cupy.recording, None
        assert recorded is not None, "no capture was begun"
        if self._cupy.refuses:
            raise RuntimeError("operation not supported")
        return recorded


class _Event:
    def __init__(self, cupy: CupyStandin) -> None:
        self._cupy = cupy

    def record(self) -> None:
        self._cupy.forbid("recording an event")

    def synchronize(self) -> None:
        self._cupy.forbid("waiting")
        self._cupy.waits += 1
