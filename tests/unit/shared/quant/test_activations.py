from __future__ import annotations

import numpy as np

from shared.quant.activations import round_q8_0, round_q8_k


def test_q8_0_blocks_have_their_own_float32_scale() -> None:
    values = np.zeros((1, 64), np.float32)
    values[0, :32] = np.arange(32)
    values[0, 32:] = np.linspace(-1e-3, 1e-3, 32)
    rounded = round_q8_0(values)
    for block in (slice(0, 32), slice(32, 64)):
        scale = np.abs(values[0, block]).max() / np.float32(127)
        codes = rounded[0, block] / scale
        np.testing.assert_allclose(codes, np.rint(codes), atol=1e-4)
        assert np.abs(rounded[0, block] - values[0, block]).max() <= scale * 0.5001


def test_q8_0_ties_go_to_even() -> None:
    values = np.zeros(32, np.float32)
    values[:4] = [127, 0.5, 1.5, -2.5]
    np.testing.assert_array_equal(round_q8_0(values)[:4], [127, 0, 2, -2])


def test_q8_k_keeps_the_largest_value_of_either_sign() -> None:
    values = np.zeros(256, np.float32)
    values[3], values[7] = 2.0, -2.0
    rounded = round_q8_k(values)
    np.testing.assert_allclose(rounded[[3, 7]], [2.0, -2.0], rtol=1e-6)
    values[3], values[7] = -2.0, 2.0
    np.testing.assert_allclose(round_q8_k(values)[[3, 7]], [-2.0, 2.0], rtol=1e-6)


def test_zero_blocks_stay_zero() -> None:
    assert (round_q8_0(np.zeros((2, 32), np.float32)) == 0).all()
    assert (round_q8_k(np.zeros((2, 256), np.float32)) == 0).all()
