"""Directions for the test models."""

from __future__ import annotations

from functools import cache

import numpy as np

from shared.model.shape import ModelShape
from shared.steering.directions import Directions
from shared.steering.steering import Steering


@cache
def directions(layers: int, width: int, seed: int = 0) -> Directions:
    """Unit vectors."""
    rows = np.random.default_rng(seed).standard_normal((layers, width))
    return Directions.of(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def steering_of(
    shape: ModelShape, attention: float = 0.0, feed_forward: float = 0.0, *, seed: int = 0
) -> Steering:
    """Random directions for a model of `shape`, with these scales."""
    return Steering(directions(shape.layer_count, shape.embedding_width, seed), attention, feed_forward)
