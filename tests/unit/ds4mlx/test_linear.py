from __future__ import annotations

import numpy as np
import pytest

from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise

mx = pytest.importorskip("mlx.core")

from ds4mlx.linear import FloatMatrix, pack_q8_0, stack_outputs  # noqa: E402
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
def test_both_storages_multiply_alike(rows: int) -> None:
    data, x = q8_0(48, 64), RANDOM.standard_normal((rows, 64)).astype(np.float32)
    weights = dequantise(TensorType.Q8_0, data, (48, 64))
    expected = x.astype(np.float64) @ weights.T.astype(np.float64)
    for matrix in (pack_q8_0(data, 48), FloatMatrix(mx.array(np.ascontiguousarray(weights.T)))):
        halves = stack_outputs([matrix, matrix])
        result = np.array(halves(mx.array(x)))
        assert result.shape == (rows, 96)
        # The halves need not be bit-equal: a BLAS may sum the columns at its edges in another order.
        for half in (result[:, :48], result[:, 48:]):
            assert np.abs(half - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("rows", [1, 15, 16, 70])
def test_products_with_transposed_and_batched_factors(rows: int) -> None:
    a = RANDOM.standard_normal((2, rows, 32)).astype(np.float32)
    b = RANDOM.standard_normal((2, 24, 32)).astype(np.float32)
    ours = np.array(multiply(mx.array(a), mx.array(b).swapaxes(1, 2), rows))
    assert np.abs(ours - a @ b.swapaxes(1, 2)).max() <= 1e-4
