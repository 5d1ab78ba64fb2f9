"""Products of 8-bit activations with dense matrices: integers are exact, only sums of blocks are rounded."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import project8
from ds4cuda.kernels.quantise import DenseCodes
from ds4cuda.weights import Matrix
from tests.cuda.arrays import assert_close, matrix
from tests.cuda.codes import dense_codes


@pytest.mark.parametrize(
    ("count", "outputs", "inputs", "groups"),
    [(1, 37, 96, 1), (9, 18, 160, 1), (1, 12, 64, 2), (8, 10, 32, 2), (2, 5, 1056, 1)],
)
def test_products(device: Device, count: int, outputs: int, inputs: int, groups: int) -> None:
    random = np.random.default_rng(count)
    held, weights = matrix(random, "q8_0", outputs, inputs)
    (x, values), y = dense_codes(random, count, groups * inputs), np.zeros((count, outputs), np.float32)
    project8.build(device)(held, x, y, groups)
    parts = values.reshape(count, groups, inputs)
    expected = np.einsum("ngi,goi->ngo", parts, weights.reshape(groups, -1, inputs)).reshape(count, outputs)
    assert_close(y, expected, 1e-6)


def test_one_block_is_exact(device: Device) -> None:
    """The largest products of codes, of both signs, and none but the two scales is rounded."""
    weights, x, y = (
        np.full((2, 32), -128, np.int8),
        np.full((1, 32), -128, np.int8),
        np.zeros((1, 2), np.float32),
    )
    weights[1] = 127
    scales = np.full((2, 1), 0x3C00, np.uint16)
    held = Matrix("q8_0", weights, scales, 32, 2)
    project8.build(device)(held, DenseCodes(x, np.ones((1, 1), np.float32)), y)
    assert y.tolist() == [[32 * 128 * 128, -32 * 128 * 127]]


def test_one_token_gives_the_bits_of_many(device: Device) -> None:
    random = np.random.default_rng(3)
    held, _ = matrix(random, "q8_0", 9, 1024)
    (x, _), call = dense_codes(random, 8, 1024), project8.build(device)
    together, alone = np.zeros((8, 9), np.float32), np.zeros((8, 9), np.float32)
    call(held, x, together)
    for token in range(8):
        one = slice(token, token + 1)
        call(held, DenseCodes(x.codes[one], x.scales[one]), alone[one])
    assert np.array_equal(together, alone)
