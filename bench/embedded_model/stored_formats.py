"""Float weights in the formats of the published checkpoints: FP4, FP8 and BF16.

Scales are powers of two (E8M0). For each block that one is taken which leaves the least squared error: to cut
off the largest values is often better for the others. Spec: model §2.5.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

FP4_BLOCK = 32
FP8_BLOCK = 128
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_FP8 = np.array(
    [(8 + m) * 2.0 ** (e - 10) if e else m * 2.0**-9 for e in range(16) for m in range(8)][:127], np.float32
)
_TRIED = (-1, 0, 1)  # powers of two around the least that cuts nothing off
_BIAS = 127


def fp4(values: Array) -> tuple[Bytes, Bytes]:
    """Codes [rows, columns / 2], low nibble first, and scales [rows, columns / 32] of [rows, columns]."""
    rows, columns = values.shape
    codes, exponents = _coded(values.reshape(-1, FP4_BLOCK), _FP4)
    nibbles = (codes | np.signbit(values).reshape(codes.shape) << 3).astype(np.uint8).reshape(rows, columns)
    packed: Bytes = nibbles[:, ::2] | nibbles[:, 1::2] << np.uint8(4)
    return packed, (exponents + _BIAS).astype(np.uint8).reshape(rows, -1)


def fp8(values: Array) -> tuple[Bytes, Bytes]:
    """Codes E4M3 [rows, columns] and a scale for each block of 128 x 128, at the edges of what there is."""
    rows, columns = values.shape
    codes = np.empty(values.shape, np.uint8)
    scales = np.empty((-(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK)), np.uint8)
    for down, across in np.ndindex(scales.shape):
        part = np.s_[down * FP8_BLOCK : (down + 1) * FP8_BLOCK, across * FP8_BLOCK : (across + 1) * FP8_BLOCK]
        block = values[part]
        found, exponents = _coded(block.reshape(1, -1), _FP8)
        codes[part] = found.reshape(block.shape) | np.signbit(block).astype(np.uint8) << 7
        scales[down, across] = exponents[0] + _BIAS
    return codes, scales


def bf16(values: Array) -> npt.NDArray[np.uint16]:
    """The upper halves, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def _coded(blocks: Array, steps: Array) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """For blocks [n, size]: the nearest of `steps` to each magnitude, and the scale's power [n]."""
    magnitudes = np.abs(blocks)
    largest = np.maximum(magnitudes.max(axis=1), np.float32(2.0**-100))
    mantissa, exponent = np.frexp(largest / steps[-1])
    least = exponent.astype(np.int64) - (mantissa == 0.5)
    middles = (steps[:-1] + steps[1:]) / 2
    best_codes = np.zeros(blocks.shape, np.uint8)
    best_power = least.copy()
    best_error = np.full(len(blocks), np.inf)
    for offset in _TRIED:
        power = least + offset
        scaled = np.ldexp(magnitudes, -power[:, None])
        codes = np.searchsorted(middles, scaled).astype(np.uint8)
        error = np.ldexp(np.square(steps[codes] - scaled, dtype=np.float64).sum(axis=1), 2 * power)
        better = error < best_error
        best_codes[better], best_power[better] = codes[better], power[better]
        best_error[better] = error[better]
    return best_codes, best_power
