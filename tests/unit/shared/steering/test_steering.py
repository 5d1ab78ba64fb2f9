"""The formula of steering, what it may be asked for, and which states belong to it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import UsageError
from shared.steering.directions import Directions
from shared.steering.steering import Steering, project_out

WEIGHTS = "ab" * 32


def _directions(seed=0, layers=3, width=8):
    rows = np.random.default_rng(seed).standard_normal((layers, width))
    return Directions.of(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_the_formula():
    output = np.array([[3, 4], [1, 0]], np.float32)
    direction = np.array([0, 1], np.float32)
    assert project_out(output, direction, 1.0).tolist() == [[3, 0], [1, 0]]
    assert project_out(output, direction, -1.0).tolist() == [[3, 8], [1, 0]]
    assert project_out(output, direction, 0.25).tolist() == [[3, 3], [1, 0]]


@settings(max_examples=25)
@given(st.integers(0, 99), st.floats(-3, 3), st.integers(1, 5))
def test_only_the_part_along_the_direction_changes(seed, scale, count):
    random = np.random.default_rng(seed)
    output, direction = random.standard_normal((count, 24)), random.standard_normal(24)
    direction /= np.linalg.norm(direction)
    found = project_out(output.astype(np.float32), direction.astype(np.float32), scale)
    along = output @ direction
    np.testing.assert_allclose(found @ direction, (1 - scale) * along, atol=1e-5)
    across = output - np.outer(along, direction)
    np.testing.assert_allclose(found - np.outer(found @ direction, direction), across, atol=1e-5)
    # A token of many gets what it would get alone.
    assert np.array_equal(
        found[-1:], project_out(output[-1:].astype(np.float32), direction.astype(np.float32), scale)
    )


def test_each_component_and_layer_has_its_own():
    steering = Steering(_directions(), attention=0.0, feed_forward=2.0)
    output = np.ones((2, 8), np.float32)
    assert steering.steered(1, "attn_out", output) is output
    for layer in range(3):
        expected = project_out(output, steering.directions.values[layer], 2.0)
        assert np.array_equal(steering.steered(layer, "ffn_out", output), expected)


@pytest.mark.parametrize("scale", [math.nan, math.inf, 100.5, -101])
def test_a_scale_has_bounds(scale):
    directions = _directions()
    for scales in ((scale, 0.0), (0.0, scale)):
        with pytest.raises(UsageError, match="is not from -100 to 100"):
            Steering(directions, *scales)
    with pytest.raises(UsageError, match="is not from"):
        Steering(directions).with_feed_forward(scale)
    assert Steering(directions, 100, -100).with_feed_forward(-99).feed_forward == -99


def test_states_belong_to_the_directions_and_to_both_scales():
    one, other = _directions(0), _directions(1)
    assert Steering(one).fingerprint(WEIGHTS) == Steering(other, -0.0).fingerprint(WEIGHTS) == WEIGHTS
    found = [
        Steering(directions, *scales).fingerprint(weights)
        for weights in (WEIGHTS, "cd" * 32)
        for directions in (one, other)
        for scales in ((1, 0), (0, 1), (1, 1), (-1, 0), (0.5, 0))
    ]
    assert len({WEIGHTS, "cd" * 32, *found}) == len(found) + 2
    assert all(len(bytes.fromhex(each)) == 32 for each in found)
    again = Directions.of(one.values.copy())
    assert Steering(again, 1).fingerprint(WEIGHTS) == found[0]
