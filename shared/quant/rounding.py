"""The rounding that the model itself applies to cached rows and indexer vectors.

Rows pass through small float formats (E4M3 and E2M1) with power-of-two block scales, and through binary16;
the results are float32 again. Must not know: models, layers, caches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_FP8_BLOCK = 64
_FP8_MAX = np.float32(448.0)
_FP8_SMALLEST = np.float32(1e-4)
_FP4_BLOCK = 32
_FP4_MAX = np.float32(6.0)
_FP4_SMALLEST = np.float32(6.0 * 2.0**-126)
_HADAMARD = 128
_HADAMARD_SCALE = np.float32(_HADAMARD**-0.5)


def round_fp8_row(rows: Array, rotary_dim: int) -> Array:
    """Rows [..., width] with all but the last `rotary_dim` channels rounded to E4M3 in blocks of 64.

    A block's scale is the power of two at or above amax / 448. Spec: model §4.1.
    """
    plain = rows.shape[-1] - rotary_dim
    rounded = rows.copy()
    rounded[..., :plain] = _round_blocks(rows[..., :plain], _FP8_BLOCK, _FP8_MAX, _FP8_SMALLEST, 3, -6)
    return rounded


def round_fp4(rows: Array) -> Array:
    """Rows [..., width] rounded to E2M1 in blocks of 32, the scale being the power of two at or above
    amax / 6. Spec: model §4.1."""
    return _round_blocks(rows, _FP4_BLOCK, _FP4_MAX, _FP4_SMALLEST, 1, 0)


def hadamard128(rows: Array) -> Array:
    """Orthonormal Walsh-Hadamard transform (natural order) of rows [..., 128]. Spec: model §4.1."""
    values = np.ascontiguousarray(rows.reshape(-1, _HADAMARD).T)
    half = 1
    while half < _HADAMARD:
        pairs = values.reshape(_HADAMARD // (2 * half), 2, half, -1)
        values = np.empty_like(pairs)
        np.add(pairs[:, 0], pairs[:, 1], out=values[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=values[:, 1])
        half *= 2
    transformed: Array = values.reshape(_HADAMARD, -1).T.reshape(rows.shape) * _HADAMARD_SCALE
    return transformed


def round_f16(rows: Array) -> Array:
    """Rows rounded to the nearest binary16 value, ties to even, and widened again."""
    return rows.astype(np.float16).astype(np.float32)


def _round_blocks(
    rows: Array, block: int, largest: np.float32, floor: np.float32, mantissa_bits: int, least_exponent: int
) -> Array:
    blocks = rows.reshape(*rows.shape[:-1], -1, block)
    amax = np.maximum(np.maximum.reduce(np.abs(blocks), axis=-1, keepdims=True), floor)
    # ceil(log2) from the exponent: exact at powers of two, where a computed logarithm may be one off.
    mantissa, exponent = np.frexp(amax / largest)
    exponent = exponent - (mantissa == 0.5)
    scaled = np.minimum(np.maximum(np.ldexp(blocks, -exponent), -largest), largest)
    rounded = _round_small_float(scaled, mantissa_bits, least_exponent)
    result: Array = np.ldexp(rounded, exponent).reshape(rows.shape)
    return result


def _round_small_float(values: Array, mantissa_bits: int, least_exponent: int) -> Array:
    """Nearest value with `mantissa_bits` stored bits and gradual underflow below 2^least_exponent, ties to
    the even code."""
    _, exponent = np.frexp(values)
    step = np.maximum(exponent - 1, least_exponent) - mantissa_bits
    result: Array = np.ldexp(np.rint(np.ldexp(values, -step)), step)
    return result
