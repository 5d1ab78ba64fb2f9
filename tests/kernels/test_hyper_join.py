from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import hyper_join, hyper_mix
from ds4mlx.kernels.kernel import Maker
from tests.kernels import hyper_reference as reference

_TILED_FROM = 16  # tokens


def _operands(count: int, width: int, mixes: int, dtype: mx.Dtype) -> list[mx.array]:
    shapes = [(count, 4, width), (count, width), (count, 20), (mixes, 4 * width)]
    arrays = [mx.array(reference.normal(width + number, *shape)) for number, shape in enumerate(shapes)]
    return [*arrays[:3], arrays[3].astype(dtype)]


def _joined(operands: list[mx.array]) -> tuple[reference.Array, reference.Array]:
    """The joined streams and the sums of the terms' magnitudes."""
    streams, output, joint = (reference.wide(operand) for operand in operands[:3])
    post, combine = joint[:, :4], joint[:, 4:].reshape(-1, 4, 4)

    def join(
        post: reference.Array, combine: reference.Array, y: reference.Array, x: reference.Array
    ) -> reference.Array:
        return post[:, :, None] * y[:, None] + np.einsum("nrj,nre->nje", combine, x)

    return join(post, combine, output, streams), join(*map(np.abs, (post, combine, output, streams)))


def _check(maker: Maker, count: int, width: int, mixes: int, dtype: mx.Dtype) -> None:
    operands = _operands(count, width, mixes, dtype)
    dimensions = {"width": width, "streams": 4, "mixes": mixes, "dtype": dtype}
    joined, partial = hyper_join.build(maker, **dimensions)(*operands)
    expected, magnitudes = _joined(operands)
    assert np.all(np.abs(reference.wide(joined) - expected) <= 5e-7 * magnitudes)
    mixed = hyper_mix.build(maker, **dimensions)(joined, operands[3])
    np.testing.assert_array_equal(np.array(partial), np.array(mixed))
    exact, sizes = reference.slices(reference.wide(joined), reference.wide(operands[3]))
    assert np.all(np.abs(reference.wide(partial) - exact) <= 1e-6 * sizes)


def _same_for_any_count(maker: Maker) -> None:
    *rows, mix = _operands(_TILED_FROM + 3, 128, 24, mx.float16)
    subject = hyper_join.build(maker, width=128, streams=4, mixes=24, dtype=mx.float16)
    joined, partial = subject(*rows, mix)
    for token in (0, 8, _TILED_FROM + 2):
        alone = subject(*(row[token : token + 1] for row in rows), mix)
        np.testing.assert_array_equal(np.array(joined[token]), np.array(alone[0][0]))
        np.testing.assert_array_equal(np.array(partial[token]), np.array(alone[1][0]))


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one token, one slice": lambda maker: _check(maker, 1, 64, 24, mx.float16),
    "several tokens, float32": lambda maker: _check(maker, 3, 192, 24, mx.float32),
    "last count without tiles": lambda maker: _check(maker, _TILED_FROM - 1, 64, 24, mx.float16),
    "whole tiles": lambda maker: _check(maker, _TILED_FROM, 128, 24, mx.float16),
    "one token in the last tile": lambda maker: _check(maker, _TILED_FROM + 1, 128, 24, mx.float16),
    "before the head": lambda maker: _check(maker, 2, 128, 4, mx.float16),
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


@pytest.mark.parametrize("count", [1, 17])
def test_fallback(count: int) -> None:
    operands = _operands(count, 192, 24, mx.float32)
    joined, partial = hyper_join.fallback(*operands)
    expected, magnitudes = _joined(operands)
    assert np.all(np.abs(reference.wide(joined) - expected) <= 5e-7 * magnitudes)
    exact, sizes = reference.slices(reference.wide(joined), reference.wide(operands[3]))
    assert np.all(
        np.abs(reference.wide(partial) - exact.sum(axis=1)[:, None]) <= 1e-6 * sizes.sum(axis=1)[:, None]
    )


@pytest.mark.parametrize(("width", "streams", "mixes"), [(96, 4, 24), (64, 2, 8), (64, 4, 32)])
def test_refuses_other_dimensions(width: int, streams: int, mixes: int, maker: Maker) -> None:
    with pytest.raises(ValueError, match=r"must be a multiple|kernels mix 4 streams|outputs"):
        hyper_join.build(maker, width=width, streams=streams, mixes=mixes, dtype=mx.float16)
