"""The rounding that the model applies to cached rows and indexer vectors, in array operations.

Exact: block scales come from exponent bits, never from a logarithm. Must not know: layers, caches.
"""

from __future__ import annotations

import mlx.core as mx

_FP8_BLOCK = 64
_FP4_BLOCK = 32
_INDEX_WIDTH = 128
_EXPONENT_BITS = 0xFF800000
_MANTISSA_BITS = 0x007FFFFF


def round_fp8_row(rows: mx.array, rotary_dim: int) -> mx.array:
    """Float32 rows [..., width] with all but the last `rotary_dim` channels rounded to E4M3 in blocks of 64.

    A block's scale is the power of two at or above amax / 448. Spec: model §4.1.
    """
    plain = rows.shape[-1] - rotary_dim
    blocks = rows[..., :plain].reshape(*rows.shape[:-1], -1, _FP8_BLOCK)
    sizes = mx.abs(blocks)
    largest = mx.maximum(sizes.max(axis=-1, keepdims=True), 1e-4)
    # Three mantissa bits, and gradual underflow below 2^-6 of the scale.
    least_normal = _power_of_two_at_or_above(largest / (448.0 * 2.0**6))
    step = _power_of_two_at_or_below(mx.maximum(sizes, least_normal)) * 0.125
    rounded = mx.round(blocks / step) * step
    return mx.concatenate([rounded.reshape(*rows.shape[:-1], plain), rows[..., plain:]], axis=-1)


def round_fp4(rows: mx.array) -> mx.array:
    """Float32 rows [..., width] rounded to E2M1 in blocks of 32, the scale being the power of two at or above
    amax / 6. Spec: model §4.1."""
    blocks = rows.reshape(*rows.shape[:-1], -1, _FP4_BLOCK)
    sizes = mx.abs(blocks)
    largest = mx.maximum(sizes.max(axis=-1, keepdims=True), 6 * 2.0**-126)
    scale = _power_of_two_at_or_above(largest / 6.0)
    # One mantissa bit: values step by half their power of two, and by half the scale below it.
    step = _power_of_two_at_or_below(mx.maximum(sizes, scale)) * 0.5
    return (mx.round(blocks / step) * step).reshape(rows.shape)


def hadamard(rows: mx.array) -> mx.array:
    """Orthonormal Walsh-Hadamard transform (natural order) of rows [..., 128]. Spec: model §4.1."""
    return mx.hadamard_transform(rows, scale=_INDEX_WIDTH**-0.5)


def round_f16(rows: mx.array) -> mx.array:
    """Float32 rows rounded to the nearest binary16 value, ties to even."""
    return rows.astype(mx.float16).astype(mx.float32)


def _power_of_two_at_or_above(positive: mx.array) -> mx.array:
    return ((positive.view(mx.uint32) + _MANTISSA_BITS) & _EXPONENT_BITS).view(mx.float32)


def _power_of_two_at_or_below(positive: mx.array) -> mx.array:
    return (positive.view(mx.uint32) & _EXPONENT_BITS).view(mx.float32)
