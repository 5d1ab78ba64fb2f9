"""Arrays of numpy and of MLX as plain bytes, and back. bfloat16, which numpy lacks, travels as uint16."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

_METAL_TYPES = {
    "float32": "float",
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "bool": "bool",
}


def is_mx(value: object) -> bool:
    """Whether `value` is an array or dtype of MLX."""
    return type(value).__module__.startswith("mlx")


def _mlx() -> ModuleType:
    import mlx.core as mx

    return mx


def dtype_name(dtype: Any) -> str:
    """Names "float32", "bfloat16", "bool" and so on, of a numpy or MLX dtype."""
    if is_mx(dtype):
        name: str = str(dtype).rsplit(".", 1)[-1]
        return "bool" if name == "bool_" else name
    return str(np.dtype(dtype).name)


def metal_type(name: str) -> str:
    """The type MLX gives a parameter of the named dtype.

    Raises:
        ValueError: Metal has none.
    """
    if name not in _METAL_TYPES:
        raise ValueError(f"Metal has no type {name}")
    return _METAL_TYPES[name]


def storage_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype that holds values of the named one."""
    return np.dtype("uint16" if name == "bfloat16" else name)


@dataclass(frozen=True, slots=True)
class HostArray:
    """An input: its bytes (`data` may be shorter or longer than the shape says where strides are kept)."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    data: npt.NDArray[Any]


def _row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _as_numpy(value: Any) -> tuple[str, npt.NDArray[Any]]:
    if is_mx(value):
        name = dtype_name(value.dtype)
        if name == "bfloat16":
            mx = _mlx()
            bits = value.view(mx.uint16) if value.ndim else value.reshape(1).view(mx.uint16)
            return name, np.asarray(bits).reshape(value.shape)
        return name, np.asarray(value)
    if not hasattr(value, "dtype"):  # MLX makes 32-bit arrays of Python's numbers
        kinds = {bool: np.bool_, int: np.int32, float: np.float32}
        value = np.asarray(value, kinds[type(value)])
    return dtype_name(value.dtype), np.asarray(value)


def host_array(value: Any, row_contiguous: bool) -> HostArray:
    """`value` (numpy or MLX array, Python number) ready to be copied.

    With `row_contiguous` false, an array keeps its strides and the bytes from its first to its last element.

    Raises:
        ValueError: a kept stride is negative.
    """
    name, array = _as_numpy(value)
    shape = array.shape
    if row_contiguous or array.flags.c_contiguous or array.size == 0:
        contiguous = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        return HostArray(name, shape, _row_strides(shape), contiguous)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    if any(stride < 0 for stride in strides):
        raise ValueError("an input with negative strides cannot be passed as it is")
    length = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    span = np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,))
    return HostArray(name, shape, strides, span)


def bits_of(value: float, name: str) -> npt.NDArray[Any]:
    """`value` in the named dtype, as a 0-d array of its storage dtype."""
    if name != "bfloat16":
        return np.asarray(value, np.dtype(name))
    mx = _mlx()
    return np.asarray(mx.array(value, mx.bfloat16).reshape(1).view(mx.uint16)).reshape(())


def output_array(address: int, shape: Sequence[int], name: str, as_mx: bool) -> Any:
    """A copy of an output's bytes as an MLX or numpy array of the named dtype."""
    dtype, size = storage_dtype(name), math.prod(shape)
    if size:
        memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
        values = np.frombuffer(memoryview(memory), dtype).reshape(shape)
    else:
        values = np.empty(shape, dtype)
    if not as_mx:
        return values.copy()
    mx = _mlx()
    array = mx.array(values)
    return array.view(mx.bfloat16) if name == "bfloat16" else array
