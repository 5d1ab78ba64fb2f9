"""Tensor data to float32: every type that a model file of this family may hold.

One function per block layout, all in array algebra over blocks. Must not know: files, tensor names, models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.quant.iq2 import iq2_grid, iq2_signs

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[np.float32]

_MXFP4_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def dequantise(type: TensorType, data: Bytes, shape: tuple[int, ...]) -> Array:
    """The values of a tensor, or of whole rows of it, as float32 of NumPy `shape` (last axis contiguous).

    `data` holds the raw bytes. Raises ValueError for a type without a dequantiser or a wrong number of bytes.
    Spec: model §3.
    """
    blocks_to_values = _DEQUANTISERS.get(type)
    if blocks_to_values is None:
        raise ValueError(f"tensors of type {type.name} cannot be dequantised")
    elements = int(np.prod(shape, dtype=np.int64))
    expected = elements // block_elements(type) * block_bytes(type)
    if data.size != expected or elements % block_elements(type):
        raise ValueError(f"{type.name} data for {shape} must have {expected} bytes, not {data.size}")
    return blocks_to_values(data.reshape(-1, block_bytes(type))).reshape(shape)


def integers(data: Bytes, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """An I32 tensor as int32 of NumPy `shape`, a view of `data` where alignment allows."""
    return _view(data.reshape(1, -1), "<i4").reshape(shape).astype(np.int32, copy=False)


def _view(part: Bytes, kind: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(part).view(kind)


def _halves(part: Bytes) -> Array:
    """Binary16 columns as float32."""
    return _view(part, "<f2").astype(np.float32)


def _f32(blocks: Bytes) -> Array:
    return _view(blocks, "<f4").astype(np.float32)


def _q8_0(blocks: Bytes) -> Array:
    values: Array = _halves(blocks[:, :2]) * _view(blocks[:, 2:], "i1").astype(np.float32)
    return values


def _q2_k(blocks: Bytes) -> Array:
    scales, planes = blocks[:, :16], blocks[:, 16:80].reshape(-1, 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    codes = ((planes >> shifts) & 3).reshape(-1, 16, 16)
    step = _halves(blocks[:, 80:82]) * (scales & 15).astype(np.float32)
    minimum = _halves(blocks[:, 82:84]) * (scales >> 4).astype(np.float32)
    values: Array = step[:, :, None] * codes.astype(np.float32) - minimum[:, :, None]
    return values


def _q4_k(blocks: Bytes) -> Array:
    packed, nibbles = blocks[:, 4:16], blocks[:, 16:144].reshape(-1, 4, 1, 32)
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 6) << 4)), axis=1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 6) << 4)), axis=1)
    codes = ((nibbles >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)) & 15).reshape(-1, 8, 32)
    step = _halves(blocks[:, :2]) * scales.astype(np.float32)
    minimum = _halves(blocks[:, 2:4]) * minima.astype(np.float32)
    values: Array = step[:, :, None] * codes.astype(np.float32) - minimum[:, :, None]
    return values


def _iq2_xxs(blocks: Bytes) -> Array:
    octets = blocks[:, 2:].reshape(-1, 8, 8)
    magnitudes = iq2_grid()[octets[:, :, :4]]
    words = _view(octets[:, :, 4:], "<u4")
    signs = iq2_signs()[(words >> np.array([0, 7, 14, 21], np.uint32)) & 127]
    negative = (signs[..., None] >> np.arange(8, dtype=np.uint8)) & 1
    scale = _halves(blocks[:, :2]) * (np.float32(0.5) + (words[..., 0] >> 28).astype(np.float32))
    step = scale * np.float32(0.25)
    values: Array = step[:, :, None, None] * np.where(negative, -1, 1).astype(np.float32)
    values *= magnitudes
    return values


def _mxfp4(blocks: Bytes) -> Array:
    scale = np.ldexp(np.float32(1.0), blocks[:, :1].astype(np.int32) - 127)
    codes = np.concatenate((blocks[:, 1:] & 15, blocks[:, 1:] >> 4), axis=1)
    with np.errstate(over="ignore"):
        values: Array = scale * _MXFP4_VALUES[codes]
    return values


_DEQUANTISERS: dict[TensorType, Callable[[Bytes], Array]] = {
    TensorType.F32: _f32,
    TensorType.F16: _halves,
    TensorType.Q8_0: _q8_0,
    TensorType.Q2_K: _q2_k,
    TensorType.Q4_K: _q4_k,
    TensorType.IQ2_XXS: _iq2_xxs,
    TensorType.MXFP4: _mxfp4,
}
