"""Directions between two kinds of outputs, against plain sums; what they are orthogonal to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from shared.steering.direction_builder import DirectionBuilder, NoDirection

LAYERS, WIDTH = 3, 16


def _outputs(seed, pairs):
    random = np.random.default_rng(seed)
    shift = random.standard_normal((LAYERS, WIDTH))
    good = random.standard_normal((pairs, LAYERS, WIDTH)) + shift
    bad = 5 * random.standard_normal((pairs, LAYERS, WIDTH)) - shift
    return good.astype(np.float32), bad.astype(np.float32)


def _built(good, bad, **settings):
    builder = DirectionBuilder(**settings)
    for pair in zip(good, bad, strict=True):
        builder.add(*pair)
    return builder.build()


def _unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@tried(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 9), st.booleans())
def test_unit_and_orthogonal_to_the_mean_of_the_bad(seed, pairs, pair_normalize):
    good, bad = _outputs(seed, pairs)
    found = _built(good, bad, pair_normalize=pair_normalize)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-12)
    control = _unit(bad.astype(np.float64).mean(axis=0))
    np.testing.assert_allclose((found * control).sum(axis=1), 0, atol=1e-12)


@tried(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_the_mean_difference(seed, pairs):
    good, bad = _outputs(seed, pairs)
    wide = good.astype(np.float64), bad.astype(np.float64)
    expected = _unit(wide[0].mean(axis=0) - wide[1].mean(axis=0))
    plain = _built(good, bad, orthogonalize=False)
    np.testing.assert_allclose(plain, expected, atol=1e-12)
    control = _unit(wide[1].mean(axis=0))
    rest = expected - control * (expected * control).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(_built(good, bad), _unit(rest), atol=1e-9)


def test_with_pairs_normalised_each_pair_counts_alike():
    good, bad = _outputs(1, 4)
    expected = _unit(_unit(good.astype(np.float64) - bad).mean(axis=0))
    found = _built(good, bad, pair_normalize=True, orthogonalize=False)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    bad = np.zeros_like(bad)
    longer = good.copy()
    longer[2] *= 1000
    np.testing.assert_allclose(
        _built(longer, bad, pair_normalize=True), _built(good, bad, pair_normalize=True), atol=1e-6
    )


def test_one_sign_of_the_difference():
    good, bad = _outputs(2, 3)
    assert np.array_equal(_built(good, bad, orthogonalize=False), -_built(bad, good, orthogonalize=False))


@pytest.mark.parametrize("settings", [{}, {"pair_normalize": True}])
def test_where_there_is_no_difference(settings):
    good, bad = _outputs(3, 2)
    good[:, 1] = bad[:, 1]
    with pytest.raises(NoDirection, match="no direction in layer 1: both kinds of prompts"):
        _built(good, bad, **settings)
    good, bad = _outputs(3, 2)
    good[:, 2] = 3 * bad[:, 2]
    assert _built(good, bad, orthogonalize=False, **settings).shape == (LAYERS, WIDTH)
    if not settings:
        with pytest.raises(NoDirection, match="no direction in layer 2: the outputs differ only in size"):
            _built(good, bad)
    with pytest.raises(NoDirection, match="no pair"):
        DirectionBuilder().build()


def test_outputs_without_a_bad_mean_lose_nothing():
    good, bad = _outputs(4, 1)
    bad = np.zeros_like(bad)
    np.testing.assert_allclose(_built(good, bad), _unit(good[0].astype(np.float64)), atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_outputs_that_are_not_finite_have_none(value, which):
    both = _outputs(2, 3)
    both[which][1, 2, 5] = value
    with pytest.raises(NoDirection, match=r"no direction in layer 2: its outputs are not finite"):
        _built(*both)
