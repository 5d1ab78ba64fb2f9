"""The stand-in with arrays that NumPy cannot work with, as those in a GPU's memory are.

What goes to a kernel, or between the host and the device, must be what the device can take. Must not know:
the backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tests.cuda.cupy_standin import CupyStandin


class DeviceArray(np.ndarray):  # type: ignore[type-arg]
    """Has a shape and a dtype, and parts; its numbers are out of the host's reach."""

    def __array_ufunc__(self, *of: Any, **settings: Any) -> NoReturn:
        raise TypeError("NumPy computes with an array of the device")

    def __array_function__(self, *of: Any, **settings: Any) -> NoReturn:
        raise TypeError("NumPy works with an array of the device")

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))

    def __bool__(self) -> bool:
        raise TypeError("the host reads an array of the device")

    __int__ = __float__ = __bool__  # type: ignore[assignment]


class StrictCupy(CupyStandin):
    """A stand-in of which all arrays are `DeviceArray`s."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.ndarray = _Methods(self)  # type: ignore[assignment]

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        return super().empty(shape, dtype).view(DeviceArray)

    def zeros(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        return super().zeros(shape, dtype).view(DeviceArray)

    def asarray(self, host: Any) -> Any:
        return super().asarray(_of_host(host)).view(DeviceArray)

    def asnumpy(self, array: Any, out: Any = None, *, blocking: bool = True) -> Any:
        return super().asnumpy(_of_device(array), out, blocking=blocking)

    def copyto(self, to: Any, values: Any) -> None:
        super().copyto(_of_device(to), _of_device(values))

    def RawModule(self, *, code: str, options: tuple[str, ...]) -> Any:
        return _Module(super().RawModule(code=code, options=options))


class _Methods:
    def __init__(self, cupy: StrictCupy) -> None:
        self._cupy = cupy

    def set(self, to: Any, host: Any, stream: Any) -> None:
        assert to.shape == host.shape
        self._cupy.forbid("a copy from the host")
        np.copyto(_of_device(to), _of_host(host), casting="no")


class _Module:
    def __init__(self, module: Any) -> None:
        self._module = module

    def get_function(self, name: str) -> _Function:
        return _Function(self._module.get_function(name))


class _Function:
    """A kernel that takes arrays of the device, and numbers of NumPy."""

    def __init__(self, function: Any) -> None:
        object.__setattr__(self, "_function", function)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._function, name, value)

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int = 0) -> None:
        given = tuple(one if isinstance(one, np.generic) else _of_device(one) for one in arguments)
        self._function(grid, block, given, shared_mem=shared_mem)


def _of_device(array: Any) -> npt.NDArray[Any]:
    """The host's view of it: CuPy copies contiguous arrays without a kernel of its own, and only those."""
    assert isinstance(array, DeviceArray), f"a {type(array).__name__} is not in the device's memory"
    assert array.flags.c_contiguous, "an array of the device that is not contiguous"
    return array.view(np.ndarray)


def _of_host(array: Any) -> npt.NDArray[Any]:
    assert type(array) is np.ndarray, f"a {type(array).__name__} is not in the host's memory"
    assert array.flags.c_contiguous, "an array of the host that is not contiguous"
    return array
