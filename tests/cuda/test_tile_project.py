"""Products of many tokens' 8-bit activations with Q8_0 matrices on tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import tile_project, tile_project_swiglu
from ds4cuda.kernels.quantise import DenseCodes
from shared.model.reference_math import swiglu
from tests.cuda.arrays import assert_close, matrix
from tests.cuda.codes import dense_codes


@pytest.mark.parametrize(
    ("count", "outputs", "inputs", "groups"),
    [(1, 5, 32, 1), (9, 65, 160, 1), (128, 64, 128, 1), (131, 2 * 70, 96, 2)],
    ids=["least", "ragged", "one tile", "groups"],
)
def test_products(device: Device, count: int, outputs: int, inputs: int, groups: int) -> None:
    random = np.random.default_rng(count)
    held, weights = matrix(random, "q8_0", outputs, inputs)
    x, values = dense_codes(random, count, groups * inputs)
    y = np.zeros((count, outputs), np.float32)
    tile_project.build(device)(held, x, y, groups)
    parts = values.reshape(count, groups, inputs)
    expected = np.einsum("ngi,goi->ngo", parts, weights.reshape(groups, -1, inputs)).reshape(count, outputs)
    assert_close(y, expected)


def test_the_largest_sums_are_exact(device: Device) -> None:
    held, _ = matrix(np.random.default_rng(0), "q8_0", 2, 64)
    held.weights[0], held.weights[1] = -128, 127
    held.scales[...] = np.float16(1).view(np.uint16)
    signs = np.array([[1], [-1], [0]], np.int8)
    x = DenseCodes(np.repeat(127 * signs, 64, axis=1), np.ones((3, 2), np.float32))
    y = np.zeros((3, 2), np.float32)
    tile_project.build(device)(held, x, y)
    assert np.array_equal(y, signs * np.array([[-128 * 127 * 64, 127 * 127 * 64]]))


def test_a_token_gets_the_same_bits_in_any_company(device: Device) -> None:
    random = np.random.default_rng(3)
    held, _ = matrix(random, "q8_0", 9, 256)
    x, _ = dense_codes(random, 130, 256)
    call = tile_project.build(device)
    together, alone = np.zeros((130, 9), np.float32), np.zeros((1, 9), np.float32)
    call(held, x, together)
    for token in (0, 127, 129):
        one = slice(token, token + 1)
        call(held, DenseCodes(x.codes[one], x.scales[one]), alone)
        assert np.array_equal(together[one], alone)


@pytest.mark.parametrize(("count", "width"), [(3, 21), (129, 40)])
@pytest.mark.parametrize("clamp", [10.0, 1e-6, 0.0])
def test_hidden_vectors(device: Device, count: int, width: int, clamp: float) -> None:
    random = np.random.default_rng(4)
    held, weights = matrix(random, "q8_0", 2 * width, 160)
    x, values = dense_codes(random, count, 160)
    hidden = np.zeros((count, width), np.float32)
    tile_project_swiglu.build(device, clamp=clamp)(held, x, hidden)
    gate, up = np.split(values @ weights.T, 2, axis=1)
    assert np.abs(gate).max() > 10
    assert_close(hidden, swiglu(gate.astype(np.float32), up.astype(np.float32), clamp), 5e-6)
