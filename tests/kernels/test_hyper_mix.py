from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import hyper_mix
from ds4mlx.kernels.kernel import Maker
from tests.kernels import hyper_reference as reference

_TILED_FROM = 16  # tokens


def _operands(count: int, width: int, mixes: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    streams = mx.array(reference.normal(count, count, 4, width))
    return streams, mx.array(reference.normal(width + mixes, mixes, 4 * width)).astype(dtype)


def _check(maker: Maker, count: int, width: int, mixes: int, dtype: mx.Dtype) -> None:
    streams, mix = _operands(count, width, mixes, dtype)
    partial = hyper_mix.build(maker, width=width, streams=4, mixes=mixes, dtype=dtype)(streams, mix)
    expected, magnitudes = reference.slices(reference.wide(streams), reference.wide(mix))
    assert partial.shape == expected.shape
    assert np.all(np.abs(reference.wide(partial) - expected) <= 1e-6 * magnitudes)


def _same_for_any_count(maker: Maker) -> None:
    streams, mix = _operands(_TILED_FROM + 3, 128, 24, mx.float16)
    subject = hyper_mix.build(maker, width=128, streams=4, mixes=24, dtype=mx.float16)
    alone = [np.array(subject(streams[token : token + 1], mix)) for token in range(_TILED_FROM + 3)]
    np.testing.assert_array_equal(np.array(subject(streams, mix)), np.concatenate(alone))


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one token, one slice": lambda maker: _check(maker, 1, 64, 24, mx.float16),
    "several tokens, float32": lambda maker: _check(maker, 3, 192, 24, mx.float32),
    "last count without tiles": lambda maker: _check(maker, _TILED_FROM - 1, 64, 24, mx.float16),
    "whole tiles": lambda maker: _check(maker, _TILED_FROM, 128, 24, mx.float16),
    "one token in the last tile": lambda maker: _check(maker, _TILED_FROM + 1, 128, 24, mx.float16),
    "the head's mix": lambda maker: _check(maker, 2, 128, 4, mx.float16),
    "squares in a turn of their own": lambda maker: _check(maker, 2, 128, 8, mx.float16),
    "squares in the last simdgroup": lambda maker: _check(maker, 2, 128, 7, mx.float16),
    "bit-equal for any count": _same_for_any_count,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("width", [4096, 7168])
def test_published_widths(width: int, maker: Maker) -> None:
    _check(maker, 1, width, 24, mx.float16)
    _check(maker, _TILED_FROM + 5, width, 24, mx.float16)


@pytest.mark.parametrize("dtype", [mx.float16, mx.float32])
@pytest.mark.parametrize("count", [1, 17])
def test_fallback(count: int, dtype: mx.Dtype) -> None:
    streams, mix = _operands(count, 192, 24, dtype)
    partial = hyper_mix.fallback(streams, mix)
    assert partial.shape == (count, 1, 25)
    expected, magnitudes = reference.slices(reference.wide(streams), reference.wide(mix))
    difference = np.abs(reference.wide(partial).sum(axis=1) - expected.sum(axis=1))
    assert np.all(difference <= 1e-6 * magnitudes.sum(axis=1))


@pytest.mark.parametrize(("width", "streams", "mixes"), [(96, 4, 24), (0, 4, 24), (64, 2, 8), (64, 4, 32)])
def test_refuses_other_dimensions(width: int, streams: int, mixes: int, maker: Maker) -> None:
    with pytest.raises(ValueError, match=r"must be a multiple|kernels mix 4 streams|outputs"):
        hyper_mix.build(maker, width=width, streams=streams, mixes=mixes, dtype=mx.float16)
