"""Steps of many tokens with 8-bit activations: halves of a layer as the reference has them, in tiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.cuda.arrays import Array, numbers
from tests.cuda.models import engine, needs_simulator
from tests.cuda.on_device import on_device
from tests.cuda.test_eight_bits import check

pytestmark = needs_simulator
COUNT = 33
TILES = {
    "tile_project_f16",
    "tile_project",
    "tile_project_swiglu",
    "count_pairs",
    "place_pairs",
    "tile_gate_up",
    "tile_down",
}


@pytest.mark.parametrize("half", ["attention", "feed_forward"])
def test_half_a_layer_of_many_tokens(half: str) -> None:
    check("tiny-q2", half, COUNT)


@pytest.mark.long
@pytest.mark.parametrize("half", ["attention", "feed_forward"])
@pytest.mark.parametrize("name", ["tiny-q4", "tiny-pro-q2"])
def test_half_a_layer_of_other_models(name: str, half: str) -> None:
    check(name, half, COUNT)


def feed_forward(streams: Array, tokens: npt.NDArray[np.integer]) -> Array:
    """Outputs [n, width] of the last layer's feed-forward half."""
    model, count = engine("tiny-q2", "actq")._model, len(streams)
    weights, step = model.weights.layers[-1], model.step(0, count)
    model.device.write(model.scratch("tokens", count), tokens.astype(np.int32))
    model.begin(0, count)
    model.device.write(model.scratch("streams", *streams.shape), streams)
    model.hyper_connection_pre(weights.feed_forward_mix, weights.feed_forward_norm, step, joins=False)
    model.feed_forward(weights, step)
    return model.device.download(model.scratch("output", count, model.shape.embedding_width))


def test_tokens_together_and_alone() -> None:
    """The two ways differ in the order of sums only; where that moves a code, by one code."""
    shape, random = engine("tiny-q2", "actq").shape, np.random.default_rng(7)
    streams = numbers(random, COUNT, shape.streams, shape.embedding_width)
    tokens = random.integers(0, shape.vocabulary_size, COUNT)
    together = feed_forward(streams, tokens)
    alone = np.concatenate([feed_forward(streams[at : at + 1], tokens[at : at + 1]) for at in range(COUNT)])
    errors = np.abs(together - alone).max(axis=1) / np.abs(alone).max(axis=1)
    assert np.median(errors) <= 1e-6
    assert errors.max() <= 0.02


@pytest.mark.skipif(on_device(), reason="a GPU does not say what was launched")
def test_many_tokens_take_tiles_and_few_do_not() -> None:
    opened = engine("tiny-q2", "actq")
    random, launched = np.random.default_rng(8), []
    for count in (COUNT, 1):
        launches = opened._model.device._cupy.launches
        before = len(launches)
        streams = numbers(random, count, opened.shape.streams, opened.shape.embedding_width)
        feed_forward(streams, np.zeros(count, np.int32))
        launched.append(launches[before:])
    assert set(launched[0]) >= TILES
    assert not TILES & set(launched[1])
