from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise

mx = pytest.importorskip("mlx.core")

from ds4mlx.linear import (  # noqa: E402
    Dimensions,
    FloatMatrix,
    HalfMatrix,
    PackedMatrix,
    multiply_groups,
    pack_q8_0,
    stack_outputs,
)
from ds4mlx.product import multiply  # noqa: E402

RANDOM = np.random.default_rng(11)


def q8_0(outputs: int, inputs: int) -> np.ndarray:
    blocks = RANDOM.integers(0, 256, (outputs * inputs // 32, 34), dtype=np.uint8)
    blocks[:, :2] = RANDOM.standard_normal((len(blocks), 1)).astype("<f2").view(np.uint8)
    return blocks.reshape(-1)


def test_packing_keeps_every_weight_bit_for_bit() -> None:
    data = q8_0(24, 128)
    packed = pack_q8_0(data, 24)
    weights = mx.dequantize(packed.packed, packed.scales, packed.biases, group_size=32, bits=8)
    assert np.array_equal(np.array(weights), dequantise(TensorType.Q8_0, data, (24, 128)))


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_all_storages_multiply_alike(rows: int) -> None:
    data, x = q8_0(48, 64), RANDOM.standard_normal((rows, 64)).astype(np.float32)
    # Scales that are powers of two: the weights are float16 numbers too.
    scales = data.reshape(-1, 34)[:, :2]
    scales[:] = np.exp2(RANDOM.integers(-6, 0, (len(scales), 1))).astype("<f2").view(np.uint8)
    weights = dequantise(TensorType.Q8_0, data, (48, 64))
    expected = x.astype(np.float64) @ weights.T.astype(np.float64)
    packed = pack_q8_0(data, 48)
    floats = FloatMatrix(mx.array(np.ascontiguousarray(weights.T)))
    halves = HalfMatrix(mx.array(weights.astype(np.float16)))
    for matrix in (packed, floats, halves):
        twice = stack_outputs([matrix, matrix])
        assert twice.dimensions == replace(matrix.dimensions, outputs=96)
        result = np.array(twice(mx.array(x)))
        assert result.shape == (rows, 96)
        # The halves need not be bit-equal: a BLAS may sum the columns at its edges in another order.
        for half in (result[:, :48], result[:, 48:]):
            assert np.abs(half - expected).max() <= 1e-5 * np.abs(expected).max()


def test_only_matrices_of_one_storage_stack() -> None:
    packed, halves = pack_q8_0(q8_0(8, 64), 8), HalfMatrix(mx.zeros((8, 64), mx.float16))
    with pytest.raises(ValueError, match="different storages"):
        stack_outputs([packed, halves])


def test_each_group_of_inputs_meets_its_own_matrix() -> None:
    weights = RANDOM.standard_normal((3, 8, 32)).astype(np.float16)
    x = RANDOM.standard_normal((5, 96)).astype(np.float32)
    expected = np.concatenate(
        [part @ own.T for part, own in zip(np.split(x, 3, axis=1), weights, strict=True)], 1
    )
    for matrix, groups in ((HalfMatrix(mx.array(weights)), 3), (HalfMatrix(mx.array(weights[0])), 1)):
        assert matrix.dimensions == Dimensions("f16", 32, 8, groups)
        own = x[:, : 32 * groups]
        result = np.array(multiply_groups(mx.array(own), matrix, groups))
        np.testing.assert_allclose(result, expected[:, : 8 * groups], rtol=1e-5, atol=1e-5)


def test_dimensions_are_those_of_one_group() -> None:
    packed = pack_q8_0(q8_0(24, 64), 24)
    parts = (packed.packed, packed.scales, packed.biases)
    grouped = PackedMatrix(*(part.reshape(3, 8, -1) for part in parts))
    assert packed.dimensions == Dimensions("q8_0", 64, 24)
    assert grouped.dimensions == Dimensions("q8_0", 64, 8, 3)
    assert FloatMatrix(mx.zeros((2, 64, 8))).dimensions == Dimensions("f32", 64, 8, 2)


@pytest.mark.parametrize("rows", [1, 15, 16, 70])
def test_products_with_transposed_and_batched_factors(rows: int) -> None:
    a = RANDOM.standard_normal((2, rows, 32)).astype(np.float32)
    b = RANDOM.standard_normal((2, 24, 32)).astype(np.float32)
    ours = np.array(multiply(mx.array(a), mx.array(b).swapaxes(1, 2), rows))
    assert np.abs(ours - a @ b.swapaxes(1, 2)).max() <= 1e-4
