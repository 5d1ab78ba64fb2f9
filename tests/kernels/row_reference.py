"""Rows as the model makes them, in float64 and without any rounding, and inputs for their kernels."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from shared.quant.rounding import round_f16, round_fp8_row

Array = npt.NDArray[np.float32]
Exact = npt.NDArray[np.float64]


def normed(values: npt.NDArray[Any], weight: Array, epsilon: float) -> Exact:
    wide = values.astype(np.float64)
    result: Exact = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + epsilon) * weight
    return result


def turned(rows: npt.NDArray[Any], rotation: Array) -> Exact:
    """Rows [..., d] by the last d numbers of `rotation` [..., D]."""
    pairs = rows.astype(np.float64).view(np.complex128)
    by = rotation.astype(np.float64).view(np.complex128)[..., -pairs.shape[-1] :]
    return (pairs * by).view(np.float64)


def rotation_table(random: np.random.Generator, count: int, head_dim: int, rotary_dim: int) -> Array:
    """Float32 [count, head_dim]: cosines and sines of any angles for the last `rotary_dim` channels."""
    angles = np.zeros((count, head_dim // 2))
    angles[:, head_dim // 2 - rotary_dim // 2 :] = random.uniform(-4, 4, (count, rotary_dim // 2))
    pairs = np.stack((np.cos(angles), np.sin(angles)), axis=-1)
    return pairs.reshape(count, head_dim).astype(np.float32)


def stored(rows: Array, rotary_dim: int) -> Array:
    """Unrounded rows as the caches hold them."""
    return round_f16(round_fp8_row(rows, rotary_dim))


def step_numbers(start: int, count: int, compressed: int = 0) -> mx.array:
    return mx.array([start, count, 0, compressed, 0, 0, 0, 0], mx.int32)


def array(values: mx.array) -> Array:
    """A kernel's result, all of which must be written: outputs are NaN before."""
    result = np.array(values.astype(mx.float32))
    assert not np.isnan(result).any()
    return result


def assert_close(found: Array, expected: npt.NDArray[Any], part: float) -> None:
    """Within `part` of the largest expected value."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= part * np.abs(expected).max()
