"""Arrays for kernel tests: random numbers, and matrices in the storages of the backend."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ds4cuda.weights import Matrix

Array = npt.NDArray[np.float32]


def numbers(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def halves(values: npt.NDArray) -> npt.NDArray[np.uint16]:
    """Bits of binary16 numbers."""
    return values.astype(np.float16).view(np.uint16)


def matrix(random: np.random.Generator, storage: str, outputs: int, inputs: int) -> tuple[Matrix, Array]:
    """A random matrix and its weights float32 [outputs, inputs]."""
    if storage == "f16":
        bits = halves(numbers(random, outputs, inputs))
        return Matrix("f16", bits, bits, inputs, outputs), bits.view(np.float16).astype(np.float32)
    codes = random.integers(-128, 128, (outputs, inputs)).astype(np.int8)
    scales = halves(random.uniform(-0.02, 0.02, (outputs, inputs // 32)))
    weights = codes * np.repeat(scales.view(np.float16).astype(np.float32), 32, axis=1)
    return Matrix("q8_0", codes, scales, inputs, outputs), weights


def assert_close(found: Array, expected: npt.NDArray, tolerance: float = 2e-6) -> None:
    """Within `tolerance` of the largest expected number."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1e-30, np.abs(expected).max()))
