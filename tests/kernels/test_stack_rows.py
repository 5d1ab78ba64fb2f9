from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import stack_rows
from ds4mlx.kernels.kernel import Maker


def _rows(count: int, width: int, dtype: mx.Dtype) -> list[mx.array]:
    random = np.random.default_rng(count)
    return [mx.array(random.standard_normal((1, width), np.float32)).astype(dtype) for _ in range(count)]


def _check(maker: Maker, count: int, width: int, dtype: mx.Dtype) -> None:
    rows = _rows(count, width, dtype)
    stacked = stack_rows.build(maker, width=width, dtype=dtype)(rows)
    np.testing.assert_array_equal(np.array(stacked), np.stack([np.array(row) for row in rows]))


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one row": lambda maker: _check(maker, 1, 64, mx.float32),
    "all rows, wider than a group": lambda maker: _check(maker, 24, 300, mx.float32),
    "halves": lambda maker: _check(maker, 3, 256, mx.float16),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


def test_fallback() -> None:
    rows = _rows(3, 40, mx.float32)
    expected = np.stack([np.array(row) for row in rows])
    np.testing.assert_array_equal(np.array(stack_rows.fallback(rows)), expected)
