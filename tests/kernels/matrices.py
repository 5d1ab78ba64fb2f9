"""Random dense matrices of each storage with their exact weights, and how far float32 products may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.linear import HalfMatrix, PackedMatrix, pack_q8_0
from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """A matrix of some storage and its `weights` float64 [groups, outputs, inputs]."""

    matrix: Any
    weights: Doubles


def numbers(seed: int, *shape: int) -> mx.array:
    """Normally distributed float32 numbers."""
    return mx.array(np.random.default_rng(seed).standard_normal(shape, np.float32))


def q8_0(seed: int, outputs: int, inputs: int, groups: int = 1) -> Known:
    """All codes, -128 among them, and a scale of its own for each block."""
    random = np.random.default_rng(seed)
    rows = groups * outputs
    blocks = random.integers(0, 256, (rows * inputs // 32, 34), dtype=np.uint8)
    scales = random.standard_normal((len(blocks), 1)) / 64
    blocks[:, :2] = scales.astype("<f2").view(np.uint8)
    data = blocks.reshape(-1)
    weights = dequantise(TensorType.Q8_0, data, (groups, outputs, inputs)).astype(np.float64)
    packed = pack_q8_0(data, rows)
    if groups > 1:
        parts = (packed.packed, packed.scales, packed.biases)
        packed = PackedMatrix(*(part.reshape(groups, outputs, -1) for part in parts))
    return Known(packed, weights)


def half(seed: int, outputs: int, inputs: int, groups: int = 1) -> Known:
    shape = (groups, outputs, inputs) if groups > 1 else (outputs, inputs)
    weight = numbers(seed, *shape).astype(mx.float16)
    return Known(HalfMatrix(weight), np.array(weight, np.float64).reshape(groups, outputs, inputs))


def exact(x: mx.array, weights: Doubles) -> Doubles:
    """Part g of each row of x times matrix g: [n, groups * outputs]."""
    parts = np.array(x, np.float64).reshape(x.shape[0], len(weights), -1)
    sums: Doubles = np.einsum("ngi,goi->ngo", parts, weights)
    return sums.reshape(x.shape[0], -1)


def assert_product(result: mx.array | None, x: mx.array, weights: Doubles, roundings: float) -> None:
    """Each result is within so many roundings of float32 of the exact sum, measured by the sum of |x w|."""
    expected = exact(x, weights)
    allowed = roundings * 2.0**-24 * exact(mx.abs(x), np.abs(weights))
    assert result is not None
    assert result.dtype == mx.float32
    assert result.shape == expected.shape
    error = np.abs(np.array(result, np.float64) - expected)
    assert np.all(error <= allowed), f"{(error / allowed).max():.3g} times what is allowed"
