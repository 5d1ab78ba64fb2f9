from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels import route
from ds4mlx.kernels.kernel import Maker
from tests.kernels.hyper_reference import Array, normal

_SCALE = 1.5
Logits = npt.NDArray[np.float32]
Chosen = npt.NDArray[np.int32]


def _affinities(logits: Logits) -> Array:
    return np.sqrt(np.logaddexp(logits.astype(np.float64), 0.0))


def _shares(logits: Logits, chosen: Chosen) -> Array:
    taken = np.take_along_axis(_affinities(logits), chosen, axis=1)
    return taken / np.maximum(taken.sum(axis=1, keepdims=True), 2.0**-14) * _SCALE


def _best(logits: Logits, bias: Logits | None, used: int) -> Chosen:
    scores = _affinities(logits) + (0.0 if bias is None else bias)
    return np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :used], axis=1).astype(np.int32)


def _compare(subject: route.Route, logits: Logits, bias: Logits | None, used: int) -> None:
    given = None if bias is None else mx.array(bias)
    chosen, shares = subject(mx.array(logits), given, None, None)
    expected = _best(logits, bias, used)
    np.testing.assert_array_equal(np.array(chosen), expected)
    np.testing.assert_allclose(np.array(shares), _shares(logits, expected), rtol=1e-6, atol=0)


def _built(maker: Maker, experts: int, used: int) -> route.Route:
    return route.build(maker, experts=experts, used=used, scale=_SCALE)


def _check(maker: Maker, count: int, experts: int, used: int, *, biased: bool = True) -> None:
    logits = normal(count + experts, count, experts) * 4
    bias = normal(experts, experts) if biased else None
    _compare(_built(maker, experts, used), logits, bias, used)


def _ties(maker: Maker) -> None:
    """Within a lane, between lanes, at the edge of the choice, all equal."""
    logits = np.zeros((4, 70), np.float32)
    logits[0, [3, 35, 67, 69]] = 2
    logits[1, [69, 33, 32, 1]] = 5
    logits[2, ::3] = -1
    _compare(_built(maker, 70, 3), logits, None, 3)
    _compare(_built(maker, 70, 6), logits, np.zeros(70, np.float32), 6)


def _bias_only_chooses(maker: Maker) -> None:
    logits = normal(3, 2, 64)
    bias = np.zeros(64, np.float32)
    bias[[5, 40]], bias[[0, 63]] = 100, -100
    _compare(_built(maker, 64, 4), logits, bias, 4)


def _far_out(maker: Maker) -> None:
    """Affinities over 40 orders of magnitude, down to sums below 2^-14."""
    logits = np.linspace(-85, 90, 3 * 40, dtype=np.float32).reshape(3, 40)
    _compare(_built(maker, 40, 5), logits, None, 5)
    _compare(_built(maker, 40, 5), np.stack([logits[0][::-1], np.full(40, -85, np.float32)]), None, 5)


def _not_numbers(maker: Maker) -> None:
    chosen, _ = _built(maker, 40, 5)(mx.array(np.full((2, 40), np.nan, np.float32)), None, None, None)
    assert np.all((np.array(chosen) >= 0) & (np.array(chosen) < 40))


def _hashed(maker: Maker, tokens: list[int]) -> None:
    """One row of the table names an expert twice; a token's row stands as it is."""
    logits = normal(9, len(tokens), 40) * 4
    table = np.random.default_rng(9).integers(0, 40, (12, 6)).astype(np.int32)
    table[3, 4] = table[3, 1]
    table[11] = [39, 0, 38, 1, 37, 2]
    subject = _built(maker, 40, 6)
    chosen, shares = subject(mx.array(logits), None, mx.array(table), mx.array(np.array(tokens, np.int32)))
    np.testing.assert_array_equal(np.array(chosen), table[tokens])
    np.testing.assert_allclose(np.array(shares), _shares(logits, table[tokens]), rtol=1e-6, atol=0)


# What a mutant of the kernels has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one token": lambda maker: _check(maker, 1, 256, 6),
    "more tokens than simdgroups": lambda maker: _check(maker, 9, 384, 6),
    "fewer experts than lanes": lambda maker: _check(maker, 3, 12, 4),
    "one expert in the last turn, no bias": lambda maker: _check(maker, 3, 65, 3, biased=False),
    "all experts": lambda maker: _check(maker, 2, 8, 8),
    "one choice": lambda maker: _check(maker, 2, 33, 1),
    "ties": _ties,
    "the bias chooses and never weighs": _bias_only_chooses,
    "far from 0": _far_out,
    "not numbers": _not_numbers,
    "hashed, one token": lambda maker: _hashed(maker, [11]),
    "hashed, an expert named twice": lambda maker: _hashed(maker, [3, 0, 11]),
    "hashed, more tokens than simdgroups": lambda maker: _hashed(maker, [1, 2, 3, 4, 5, 6, 7, 8, 11]),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


def test_fallback() -> None:
    subject = partial(route.fallback, used=6, scale=_SCALE)
    logits, bias = normal(1, 5, 40) * 4, normal(2, 40)
    _compare(subject, logits, bias, 6)
    _compare(subject, logits, None, 6)
    table = np.array([[1, 2, 3, 4, 5, 39], [7, 7, 0, 1, 2, 3]], np.int32)
    tokens = mx.array(np.array([1, 0, 1, 1, 0], np.int32))
    chosen, shares = subject(mx.array(logits), None, mx.array(table), tokens)
    np.testing.assert_array_equal(np.array(chosen), table[np.array(tokens)])
    np.testing.assert_allclose(np.array(shares), _shares(logits, np.array(chosen)), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("experts", "used"), [(7, 2), (16, 17), (64, 33), (64, 0)])
def test_refuses_other_counts(experts: int, used: int, maker: Maker) -> None:
    with pytest.raises(ValueError, match=r"choose among at least|a token uses 1 to"):
        _built(maker, experts, used)
