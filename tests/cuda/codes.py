"""8-bit activations for kernel tests, and the numbers that they stand for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ds4cuda.kernels.quantise import DenseCodes, ExpertCodes

Doubles = npt.NDArray[np.float64]


def dense_codes(random: np.random.Generator, count: int, width: int) -> tuple[DenseCodes, Doubles]:
    """Random codes with every value, and float64 [count, width] of what they stand for."""
    codes = random.integers(-128, 128, (count, width)).astype(np.int8)
    scales = random.uniform(0.002, 0.02, (count, width // 32)).astype(np.float32)
    values: Doubles = codes * np.repeat(scales.astype(np.float64), 32, axis=1)
    return DenseCodes(codes, scales), values


def expert_codes(random: np.random.Generator, count: int, width: int) -> tuple[ExpertCodes, Doubles]:
    """The same for experts; scales have both signs."""
    codes = random.integers(-127, 128, (count, width)).astype(np.int8)
    scales = random.uniform(-0.02, 0.02, (count, width // 256)).astype(np.float32)
    sums = codes.reshape(count, -1, 16).sum(axis=2).astype(np.int16)
    values: Doubles = codes * np.repeat(scales.astype(np.float64), 256, axis=1)
    return ExpertCodes(codes, scales, sums), values
