from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.quant.rounding import hadamard128, round_f16, round_fp4, round_fp8_row

Array = npt.NDArray[np.float32]

# Non-negative values by code: E4M3 without the NaN code, and E2M1.
E4M3 = np.array(
    [(m / 8 * 2.0**-6) if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127]
)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest(values: Array, codes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """By trying every code: the nearest, the even code on ties."""
    distance = np.abs(np.abs(values.astype(np.float64))[:, None] - codes)
    ties = distance == distance.min(axis=1, keepdims=True)
    even_first = np.where(ties, np.arange(len(codes)) % 2, 2)
    return np.sign(values) * codes[even_first.argmin(axis=1)]


def midpoints(codes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (codes[1:] + codes[:-1]) / 2


@pytest.mark.parametrize("scale", [2.0**-24, 2.0**-20, 1.0, 2.0**30])
def test_fp8_takes_the_nearest_code(scale: float) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate((E4M3, midpoints(E4M3), -midpoints(E4M3), rng.uniform(-448, 448, 2000)))
    values = values[: len(values) // 63 * 63].astype(np.float32).reshape(-1, 63)
    rows = np.concatenate((values, np.full((len(values), 1), 448, np.float32)), axis=1) * np.float32(scale)
    expected = nearest((rows / np.float32(scale)).ravel(), E4M3).reshape(rows.shape) * scale
    if 448 * scale > 1e-4:
        np.testing.assert_array_equal(round_fp8_row(rows, 0), expected)
    else:  # below the floor the block's scale is that of an amax of 1e-4
        step = 2.0 ** np.ceil(np.log2(np.float32(1e-4) / 448))
        expected = nearest((rows / np.float32(step)).ravel(), E4M3).reshape(rows.shape) * step
        np.testing.assert_array_equal(round_fp8_row(rows, 0), expected)


@pytest.mark.parametrize("exponent", range(-20, 21))
def test_fp8_scale_is_exact_around_powers_of_two(exponent: int) -> None:
    """At amax = 448 * 2^e the scale is 2^e; one float above it doubles, and odd codes are lost."""
    amax = np.float32(448 * 2.0**exponent)
    odd_code = np.float32(416 * 2.0**exponent + 16 * 2.0**exponent)  # 432 is a tie between 416 and 448
    row = np.full(64, odd_code, np.float32)
    row[0] = amax
    assert round_fp8_row(row, 0)[1] == np.float32(448 * 2.0**exponent)
    fine = np.float32(1.125 * 2.0**exponent)  # exact at scale 2^e and at 2^(e+1)
    smallest = np.float32(2.0 ** (exponent - 9))
    row[1], row[2] = fine, smallest
    assert round_fp8_row(row, 0)[2] == smallest
    row[0] = np.nextafter(amax, np.float32(np.inf))
    assert round_fp8_row(row, 0)[2] == 0  # half a step of the doubled scale, tie to even
    assert round_fp8_row(row, 0)[1] == fine


def test_fp8_leaves_the_rotary_tail_alone() -> None:
    row = np.random.default_rng(2).standard_normal((3, 192)).astype(np.float32)
    rounded = round_fp8_row(row, 64)
    np.testing.assert_array_equal(rounded[:, 128:], row[:, 128:])
    assert (rounded[:, :128] != row[:, :128]).any()


def test_fp4_takes_the_nearest_code() -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate((E2M1, midpoints(E2M1), -midpoints(E2M1), rng.uniform(-6, 6, 288)))
    values = values.astype(np.float32)[:310].reshape(-1, 31)
    rows = np.concatenate((values, np.full((len(values), 1), 6, np.float32)), axis=1)
    expected = nearest(rows.ravel(), E2M1).reshape(rows.shape)
    np.testing.assert_array_equal(round_fp4(rows), expected)
    np.testing.assert_array_equal(round_fp4(rows * np.float32(2.0**-30)), expected * 2.0**-30)


def test_zero_and_tiny_rows_stay_finite() -> None:
    for value in (0.0, 1e-45, 1e-38):
        assert np.isfinite(round_fp4(np.full(32, value, np.float32))).all()
        assert (round_fp8_row(np.full(64, value, np.float32), 0) == 0).all()


@given(st.integers(0, 2**32 - 1))
def test_rounding_twice_changes_nothing(seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((2, 128)).astype(np.float32)
    once = round_fp8_row(rows, 64)
    np.testing.assert_array_equal(round_fp8_row(once, 64), once)
    np.testing.assert_array_equal(round_fp4(round_fp4(rows)), round_fp4(rows))
    np.testing.assert_array_equal(round_f16(round_f16(rows)), round_f16(rows))


def test_hadamard_is_the_walsh_matrix_in_natural_order() -> None:
    index = np.arange(128)
    parity = np.array([[bin(i & j).count("1") % 2 for j in index] for i in index])
    matrix = np.where(parity, -1.0, 1.0) / np.sqrt(128)
    rows = np.random.default_rng(4).standard_normal((5, 2, 128)).astype(np.float32)
    np.testing.assert_allclose(hadamard128(rows), rows @ matrix.T, atol=2e-6)
