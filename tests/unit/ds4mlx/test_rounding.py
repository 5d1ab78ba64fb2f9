from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.quant import rounding as reference
from tests.support.golden import golden_arrays

mx = pytest.importorskip("mlx.core")

from ds4mlx.rounding import hadamard, round_f16, round_fp4, round_fp8_row  # noqa: E402

ROTARY = 64
VECTORS = golden_arrays("vectors.npz")


def rows_of_all_sizes(seed: int) -> npt.NDArray[np.float32]:
    """Rows of 256 whose sizes span the float32 range that occurs, with exact powers of two and zeros."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((64, 256)) * np.exp2(random.integers(-30, 20, (64, 1)))
    rows[random.random(rows.shape) < 0.05] = 0
    rows[0], rows[1, :32], rows[2] = 0, 448.0, np.exp2(random.integers(-12, 9, 256))
    return rows.astype(np.float32)


def test_golden_vectors_exactly() -> None:
    assert np.array_equal(np.array(round_fp8_row(mx.array(VECTORS["fp8_in"]), ROTARY)), VECTORS["fp8_out"])
    indexed = round_fp4(hadamard(mx.array(VECTORS["indexer_in"])))
    assert np.array_equal(np.array(indexed), VECTORS["indexer_out"])
    assert np.array_equal(np.array(round_f16(mx.array(VECTORS["f16_in"]))), VECTORS["f16_out"])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_any_rows_as_the_reference(seed: int) -> None:
    rows = rows_of_all_sizes(seed)
    ours = np.array(round_fp8_row(mx.array(rows), ROTARY))
    assert np.array_equal(ours, reference.round_fp8_row(rows, ROTARY))
    assert np.array_equal(np.array(round_fp4(mx.array(rows))), reference.round_fp4(rows))
    assert np.array_equal(np.array(hadamard(mx.array(rows[:, :128]))), reference.hadamard128(rows[:, :128]))


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.25, 0), (0.75, 1), (1.25, 1), (1.75, 2), (2.5, 2), (3.5, 4), (5, 4), (-0.75, -1), (-5, -4), (6, 6)],
)
def test_fp4_ties_go_to_the_even_code(value: float, rounded: float) -> None:
    row = np.zeros((1, 32), np.float32)
    row[0, :2] = 6, value  # the largest value sets the scale to 1
    assert np.array(round_fp4(mx.array(row)))[0, 1] == rounded


@pytest.mark.parametrize("exponent", [-20, -1, 0, 3])
def test_a_scale_at_a_power_of_two_is_not_doubled(exponent: int) -> None:
    scale = 2.0**exponent
    row = np.full((1, 128), 448 * scale, np.float32)
    row[0, 1] = scale * 2.0**-9  # the smallest value that this scale can hold
    assert np.array_equal(np.array(round_fp8_row(mx.array(row), ROTARY)), row)
