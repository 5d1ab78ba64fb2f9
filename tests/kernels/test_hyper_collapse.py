from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import hyper_collapse
from ds4mlx.kernels.kernel import Maker
from tests.kernels import hyper_reference as reference
from tests.support.golden import golden_arrays

# Large enough that a place where one is forgotten, or added twice, shows.
_EPSILON, _RMS_EPSILON = 0.03, 0.2
_MIXES = 24
VECTORS = golden_arrays("vectors.npz")


def _operands(count: int, width: int, slices: int, spread: float = 1.0) -> list[mx.array]:
    """`spread` multiplies the mix's outputs."""
    sums = reference.normal(slices, count, slices, _MIXES + 1) * 3
    sums[..., -1] = np.square(sums[..., -1]) * 40
    streams = reference.normal(width, count, 4, width)
    scale, base = reference.normal(5, _MIXES) * spread, reference.normal(6, _MIXES) * spread
    return [mx.array(part) for part in (streams, sums, scale, base, reference.normal(7, width))]


def _expected(operands: list[mx.array], rounds: int) -> tuple[reference.Array, reference.Array]:
    streams, sums, scale, base, norm = map(reference.wide, operands)
    values = reference.mix_values(sums, scale, base, 4 * streams.shape[2], _RMS_EPSILON)
    gates = reference.sigmoid(values[:, :8])
    combine = reference.doubly_normalised(values[:, 8:].reshape(-1, 4, 4), rounds, _EPSILON)
    x = reference.collapsed(streams, gates[:, :4] + _EPSILON, norm, _RMS_EPSILON)
    return x, np.concatenate([2 * gates[:, 4:], combine.reshape(len(combine), 16)], axis=1)


def _compare(found: tuple[mx.array, mx.array], expected: tuple[reference.Array, reference.Array]) -> None:
    for array, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(reference.wide(array), exact, rtol=0, atol=2e-6 * np.abs(exact).max())


def _check(
    maker: Maker, count: int, width: int, slices: int, *, rounds: int = 20, spread: float = 1.0
) -> None:
    operands = _operands(count, width, slices, spread)
    subject = hyper_collapse.build(
        maker, width=width, streams=4, rounds=rounds, epsilon=_EPSILON, rms_epsilon=_RMS_EPSILON
    )
    _compare(subject(*operands), _expected(operands, rounds))


def _golden(subject: hyper_collapse.HyperCollapse) -> None:
    """The C engine's pre, post and combine weights. Streams that are 1 in one channel each show pre, but for
    the norm's factor."""
    mixes, outputs = VECTORS["hc_mix"], VECTORS["hc_out"]
    streams = np.zeros((1, 4, 64), np.float32)
    streams[0, range(4), range(4)] = 1
    for mix, scale, base, expected in zip(
        mixes, VECTORS["hc_scale"], VECTORS["hc_base"], outputs, strict=True
    ):
        # Squares with which the root mean square, epsilon included, is 1.
        partial = np.concatenate([mix, [256 * (1 - 1e-6)]]).astype(np.float32)[None, None]
        arrays = streams, partial, np.repeat(scale, (4, 4, 16)), base, np.ones(64, np.float32)
        x, joint = (np.array(part)[0] for part in subject(*map(mx.array, arrays)))
        assert np.abs(joint - expected[4:]).max() <= 5e-7
        pre = x * np.sqrt(np.square(expected[:4]).sum() / 64 + 1e-6)
        np.testing.assert_allclose(pre[:4], expected[:4], rtol=0, atol=5e-7)


def _golden_kernel(maker: Maker) -> None:
    _golden(hyper_collapse.build(maker, width=64, streams=4, rounds=20, epsilon=1e-6, rms_epsilon=1e-6))


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "half a simdgroup, one slice": lambda maker: _check(maker, 1, 64, 1),
    "two simdgroups, the second not full": lambda maker: _check(maker, 3, 192, 3),
    "more slices than simdgroups": lambda maker: _check(maker, 2, 256, 7),
    "two steps, the second not full": lambda maker: _check(maker, 1, 2048 + 64, 33),
    "golden vectors": _golden_kernel,
    "columns once": lambda maker: _check(maker, 2, 64, 1, rounds=1),
    "columns, rows, columns": lambda maker: _check(maker, 2, 64, 1, rounds=2),
    "saturated gates and logits": lambda maker: _check(maker, 2, 64, 1, spread=200.0),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("width", [4096, 7168])
def test_published_widths(width: int, maker: Maker) -> None:
    _check(maker, 5, width, width // 64)


def test_fallback_golden_vectors() -> None:
    _golden(partial(hyper_collapse.fallback, rounds=20, epsilon=1e-6, rms_epsilon=1e-6))


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("count", [1, 17])
def test_fallback(count: int, slices: int) -> None:
    operands = _operands(count, 192, slices)
    subject = partial(hyper_collapse.fallback, rounds=20, epsilon=_EPSILON, rms_epsilon=_RMS_EPSILON)
    _compare(subject(*operands), _expected(operands, 20))


@pytest.mark.parametrize(("width", "streams"), [(96, 4), (64, 2)])
def test_refuses_other_dimensions(width: int, streams: int, maker: Maker) -> None:
    with pytest.raises(ValueError, match=r"must be a multiple|kernels mix 4 streams"):
        hyper_collapse.build(maker, width=width, streams=streams, rounds=20, epsilon=1e-6, rms_epsilon=1e-6)
