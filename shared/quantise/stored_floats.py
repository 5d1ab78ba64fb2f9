"""Numbers of a checkpoint: plain floats, FP8 with 128 x 128 block scales, and FP4 with a scale per 32.

Turns rows of a stored tensor into float32, or hands out FP4 as it is. Spec: model §2.5. Must not know: what
a tensor is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from shared.gguf.mapping import shown
from shared.quantise.safetensors import Checkpoint, CheckpointError, StoredTensor

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

FP8_BLOCK = 128
_FP4_BLOCK = 32
_PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
_PACKED = ("F4", "I8", "U8")
_FP4_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_SCALE_NAMES = (".scale", ".weight_scale_inv")


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """A stored matrix of floats and the scales that belong to it. `columns` counts numbers, not bytes."""

    stored: StoredTensor
    scales: StoredTensor | None
    rows: int
    columns: int

    @property
    def is_fp4(self) -> bool:
        return self.stored.dtype in _PACKED

    def floats(self, checkpoint: Checkpoint, start: int, stop: int) -> Array:
        """Rows `start` to `stop`, float32 [stop - start, columns]. For FP8, `start` is a multiple of 128."""
        data = _rows(checkpoint, self.stored, self.rows, start, stop)
        with np.errstate(over="ignore"):  # what does not fit float32 is told as not finite
            if self.is_fp4:
                return self._fp4(checkpoint, data, start, stop)
            if self.stored.dtype == "F8_E4M3":
                return self._fp8(checkpoint, data, start, stop)
            if self.stored.dtype == "BF16":
                wide = data.view("<u2").astype(np.uint32) << np.uint32(16)
                return wide.view(np.float32)
            return data.view(_PLAIN[self.stored.dtype]).astype(np.float32)

    def fp4(self, checkpoint: Checkpoint) -> tuple[Bytes, Bytes]:
        """All codes [rows, columns / 2] and E8M0 scales [rows, columns / 32] of an FP4 matrix."""
        assert self.is_fp4
        assert self.scales is not None
        codes = _rows(checkpoint, self.stored, self.rows, 0, self.rows)
        return codes, _rows(checkpoint, self.scales, self.rows, 0, self.rows)

    def _fp4(self, checkpoint: Checkpoint, codes: Bytes, start: int, stop: int) -> Array:
        assert self.scales is not None
        scales = _powers()[_rows(checkpoint, self.scales, self.rows, start, stop)]
        values = np.stack((_FP4_VALUES[codes & 15], _FP4_VALUES[codes >> 4]), axis=2)
        parts = values.reshape(stop - start, -1, _FP4_BLOCK)
        parts *= scales[:, :, None]
        return parts.reshape(stop - start, self.columns)

    def _fp8(self, checkpoint: Checkpoint, data: Bytes, start: int, stop: int) -> Array:
        values: Array = _e4m3()[data]
        if self.scales is None:
            return values
        assert start % FP8_BLOCK == 0
        across = -(-self.rows // FP8_BLOCK)
        raw = _rows(checkpoint, self.scales, across, start // FP8_BLOCK, -(-stop // FP8_BLOCK))
        scales = raw.view("<f4") if self.scales.dtype == "F32" else _powers()[raw]
        for block, line in enumerate(scales):
            part = values[block * FP8_BLOCK : (block + 1) * FP8_BLOCK]
            part *= np.repeat(line, FP8_BLOCK)[: self.columns]
        return values


def float_matrix(checkpoint: Checkpoint, stored: StoredTensor) -> FloatMatrix:
    """A stored tensor of one or two dimensions as a matrix; a vector is one row. Raises CheckpointError for
    a type that holds no floats, or scales that are missing or do not fit."""
    shape = stored.shape if len(stored.shape) == 2 else (1, *stored.shape)
    where = f"tensor {shown(stored.name)}"
    if len(shape) != 2 or not all(shape):
        raise CheckpointError(f"{where} has the shape {list(stored.shape)}: one or two dimensions are read")
    rows, columns = shape
    if stored.dtype in _PLAIN or stored.dtype == "BF16":
        return FloatMatrix(stored, None, rows, columns)
    scales = _scales(checkpoint, stored)
    if stored.dtype == "F8_E4M3":
        expected = (-(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK))
        _check_scales(where, scales, expected, ("F8_E8M0", "U8", "F32"))
        return FloatMatrix(stored, scales, rows, columns)
    if stored.dtype not in _PACKED:
        raise CheckpointError(f"{where} is {stored.dtype}, which holds no weights")
    columns *= 1 if stored.dtype == "F4" else 2
    if columns % _FP4_BLOCK:
        raise CheckpointError(
            f"{where} is FP4 with rows of {columns} elements, not a multiple of {_FP4_BLOCK}"
        )
    _check_scales(where, scales, (rows, columns // _FP4_BLOCK), ("F8_E8M0", "U8"))
    return FloatMatrix(stored, scales, rows, columns)


def _scales(checkpoint: Checkpoint, stored: StoredTensor) -> StoredTensor | None:
    base = stored.name.removesuffix(".weight")
    return next((found for end in _SCALE_NAMES if (found := checkpoint.tensors.get(base + end))), None)


def _check_scales(
    where: str, scales: StoredTensor | None, expected: tuple[int, int], dtypes: tuple[str, ...]
) -> None:
    if scales is None:
        raise CheckpointError(f"{where} has no scales beside it")
    if scales.shape != expected or scales.dtype not in dtypes:
        found = f"{scales.dtype} {list(scales.shape)}"
        raise CheckpointError(f"{where} has scales of {found}, expected {dtypes[0]} {list(expected)}")


def _rows(checkpoint: Checkpoint, stored: StoredTensor, rows: int, start: int, stop: int) -> Bytes:
    width = stored.nbytes // rows
    return checkpoint.read(stored, start * width, (stop - start) * width).reshape(stop - start, width)


@cache
def _powers() -> Array:
    """The 256 values of E8M0: powers of two from -127 on, and NaN."""
    values: Array = np.ldexp(np.float32(1), np.arange(-127, 129).clip(max=127)).astype(np.float32)
    values[255] = np.nan
    return values


@cache
def _e4m3() -> Array:
    """The 256 values of E4M3 without infinities: bias 7, and NaN where all bits but the sign are set."""
    code = np.arange(128)
    exponent, mantissa = code >> 3, code & 7
    normal = np.ldexp((8 + mantissa).astype(np.float32), exponent - 10)
    values = np.where(exponent > 0, normal, np.ldexp(mantissa.astype(np.float32), -9))
    values[127] = np.nan
    codes: Array = np.concatenate((values, -values)).astype(np.float32)
    return codes
