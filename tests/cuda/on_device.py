"""Contract tests on a GPU: the same tests, over the same arrays of the host.

`DS4_CUDA_DEVICE=1` asks for it. Such a run needs NumPy, CuPy, tokenizers and pytest, and no other package:
`ELSEWHERE` are the files that need more, or the simulator. Must not know: what any kernel computes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ds4cuda.device import Device

VARIABLE = "DS4_CUDA_DEVICE"
ELSEWHERE = (
    "test_availability.py",
    "test_capture.py",
    "test_contracts_on_device.py",
    "test_device_script.py",
    "test_interchange.py",
    "test_loading.py",
    "test_mutants.py",
    "test_nvrtc.py",
    "test_plan.py",
    "test_program.py",
    "test_session.py",
    "test_steering.py",
    "test_strict_arrays.py",
)
# Bytes on either side of an array that a kernel must leave as they are; keeps the alignment of allocations.
_GUARD = 512
_GUARD_BYTE = 0xA5

Bytes = npt.NDArray[np.uint8]


def on_device() -> bool:
    """Whether this run of the tests is to use the GPU."""
    return os.environ.get(VARIABLE) == "1"


def kernel_device(check: str = "fast", seed: int = 0) -> Device | HostArrayDevice:
    """A device for the contract of a kernel: the GPU, or one in the simulator with this level of checks and
    order of threads. Skips the test where neither can be had."""
    if on_device():
        import cupy

        return HostArrayDevice(cupy)
    import pytest

    from ds4cuda.device import Device
    from tests.cuda.cupy_standin import CupyStandin
    from tests.ksim import clang_missing

    missing = clang_missing()
    if missing:
        pytest.skip(missing)
    return Device(CupyStandin(check=check, seed=seed))


class HostArrayDevice:
    """Compiles and launches like `ds4cuda.device.Device`, but takes arrays of NumPy: each launch copies them
    to the GPU and what became of them back."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._functions: dict[tuple[str, str], _Function] = {}

    def function(self, text: str, name: str, options: tuple[str, ...]) -> Any:
        found = self._functions.get((text, name))
        if found is None:
            module = self._cupy.RawModule(code=text, options=options)
            found = self._functions[text, name] = _Function(self._cupy, name, module.get_function(name))
        return found


@dataclass(slots=True)
class _Region:
    """Bytes of the host that arrays of one launch share, from `first` to before `end`."""

    first: int
    end: int
    memory: Any = field(default=None)

    def bytes(self) -> Bytes:
        """The host's own, not a copy."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * (self.end - self.first)).from_address(self.first))


class _Function:
    def __init__(self, cupy: Any, name: str, kernel: Any) -> None:
        self._cupy = cupy
        self._name = name
        self._kernel = kernel

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return int(self._kernel.max_dynamic_shared_size_bytes)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value: int) -> None:
        self._kernel.max_dynamic_shared_size_bytes = value

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        """Raises AssertionError where the kernel wrote beside an array, or into one that can only be read."""
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        regions = _regions(arrays)
        for region in regions:
            guard = np.full(_GUARD, _GUARD_BYTE, np.uint8)
            region.memory = self._cupy.asarray(np.concatenate([guard, region.bytes(), guard]))
        given = tuple(self._there(argument, regions) for argument in arguments)
        self._kernel(grid, block, given, shared_mem=shared_mem)
        fixed = [_span(array) for array in arrays if not array.flags.writeable]
        for region in regions:
            self._bring_back(region, fixed)

    def _there(self, argument: Any, regions: list[_Region]) -> Any:
        """An argument as the kernel gets it: an array's place on the GPU."""
        if not isinstance(argument, np.ndarray):
            return argument
        first, end = _span(argument)
        region = next(one for one in regions if one.first <= first and end <= one.end)
        at = _GUARD + first - region.first
        return region.memory[at : at + argument.nbytes].view(argument.dtype).reshape(argument.shape)

    def _bring_back(self, region: _Region, fixed: list[tuple[int, int]]) -> None:
        found, here = self._cupy.asnumpy(region.memory), region.bytes()
        guards = np.concatenate([found[:_GUARD], found[-_GUARD:]])
        assert (guards == _GUARD_BYTE).all(), f"{self._name} wrote beside an array"
        found = found[_GUARD:-_GUARD]
        if any(region.first <= first < region.end for first, _ in fixed):
            assert np.array_equal(found, here), f"{self._name} wrote into an array that is only read"
            return
        here[:] = found


def _span(array: npt.NDArray[Any]) -> tuple[int, int]:
    """The addresses of an array's bytes."""
    assert array.flags.c_contiguous, "kernels take contiguous arrays"
    first = int(array.__array_interface__["data"][0])
    return first, first + array.nbytes


def _regions(arrays: Sequence[npt.NDArray[Any]]) -> list[_Region]:
    """The fewest regions that hold all arrays; those that overlap share one."""
    regions: list[_Region] = []
    for first, end in sorted({_span(array) for array in arrays}):
        if regions and first < regions[-1].end:
            regions[-1].end = max(regions[-1].end, end)
        else:
            regions.append(_Region(first, end))
    return regions
