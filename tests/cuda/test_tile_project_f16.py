"""Products of many tokens' vectors with binary16 matrices on tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import tile_project_f16
from tests.cuda.arrays import assert_close, matrix, numbers


@pytest.mark.parametrize(
    ("count", "outputs", "inputs"),
    [(1, 3, 8), (9, 130, 200), (64, 128, 64), (67, 40, 328)],
    ids=["least", "ragged", "one tile", "two tiles"],
)
@pytest.mark.parametrize("size", [1.0, 900.0, 1e-3])
def test_products(device: Device, count: int, outputs: int, inputs: int, size: float) -> None:
    """To the tolerance of float products, but that the rest of a number is a multiple of 2^-24."""
    random = np.random.default_rng(count)
    held, weights = matrix(random, "f16", outputs, inputs)
    x, y = numbers(random, count, inputs) * np.float32(size), np.zeros((count, outputs), np.float32)
    tile_project_f16.build(device)(held, x, y)
    expected = x.astype(np.float64) @ weights.T.astype(np.float64)
    cut = 2.0**-25 * np.abs(weights).sum(axis=1).max()
    assert_close(y, expected, 2e-6 + cut / np.abs(expected).max())
