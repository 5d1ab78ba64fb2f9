from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import head_collapse
from ds4mlx.kernels.kernel import Maker
from tests.kernels import hyper_reference as reference

# Large enough that a place where one is forgotten, or added twice, shows.
_EPSILON, _RMS_EPSILON = 0.03, 0.2


def _operands(count: int, width: int, slices: int, spread: float = 1.0) -> list[mx.array]:
    """`spread` multiplies the mix's outputs."""
    sums = reference.normal(slices, count, slices, 5) * 3
    sums[..., -1] = np.square(sums[..., -1]) * 40
    streams = reference.normal(width, count, 4, width)
    scale, base = reference.normal(5, 4) * spread, reference.normal(6, 4) * spread
    return [mx.array(part) for part in (streams, sums, scale, base, reference.normal(7, width))]


def _expected(operands: list[mx.array]) -> reference.Array:
    streams, sums, scale, base, norm = map(reference.wide, operands)
    values = reference.mix_values(sums, scale, base, 4 * streams.shape[2], _RMS_EPSILON)
    return reference.collapsed(streams, reference.sigmoid(values) + _EPSILON, norm, _RMS_EPSILON)


def _compare(found: mx.array, exact: reference.Array) -> None:
    np.testing.assert_allclose(reference.wide(found), exact, rtol=0, atol=2e-6 * np.abs(exact).max())


def _check(maker: Maker, count: int, width: int, slices: int, spread: float = 1.0) -> None:
    operands = _operands(count, width, slices, spread)
    subject = head_collapse.build(maker, width=width, streams=4, epsilon=_EPSILON, rms_epsilon=_RMS_EPSILON)
    _compare(subject(*operands), _expected(operands))


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "five sums in constant space": lambda maker: _check(maker, 1, 64, 1),
    "two simdgroups, the second not full": lambda maker: _check(maker, 3, 192, 3),
    "more slices than simdgroups": lambda maker: _check(maker, 2, 256, 7),
    "two steps, the second not full": lambda maker: _check(maker, 1, 2048 + 64, 33),
    "saturated gates": lambda maker: _check(maker, 2, 64, 1, spread=200.0),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("width", [4096, 7168])
def test_published_widths(width: int, maker: Maker) -> None:
    _check(maker, 2, width, width // 64)


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("count", [1, 17])
def test_fallback(count: int, slices: int) -> None:
    operands = _operands(count, 192, slices)
    subject = partial(head_collapse.fallback, epsilon=_EPSILON, rms_epsilon=_RMS_EPSILON)
    _compare(subject(*operands), _expected(operands))


@pytest.mark.parametrize(("width", "streams"), [(96, 4), (64, 2)])
def test_refuses_other_dimensions(width: int, streams: int, maker: Maker) -> None:
    with pytest.raises(ValueError, match=r"must be a multiple|kernels mix 4 streams"):
        head_collapse.build(maker, width=width, streams=streams, epsilon=1e-6, rms_epsilon=1e-6)
