"""Random session states of a toy shape, and their payload bytes."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shared.kv.payload import LayerState, PayloadLayout, SessionState, write_payload
from shared.model.shape import ModelShape
from tests.support.shapes import toy_shape

TOY = toy_shape(compress_ratios=(0, 4, 128), head_dim=8, index_dim=4, vocabulary_size=16)


def layout_of(shape: ModelShape = TOY, context: int = 2048, raw_capacity: int = 128) -> PayloadLayout:
    return PayloadLayout(shape, context, raw_capacity, min(context, 4096))


def random_state(shape: ModelShape, tokens: int, window: int = 128, seed: int = 0) -> SessionState:
    """A state of `tokens` with the right shapes and random numbers."""
    rng = np.random.default_rng(seed)

    def rows(*size: int) -> np.ndarray:
        return rng.standard_normal(size, dtype=np.float32)

    layers = layers_of(shape, tokens, window, rows)
    ids = rng.integers(0, shape.vocabulary_size, tokens).tolist()
    return SessionState(ids, rows(shape.vocabulary_size), layers)


def layers_of(
    shape: ModelShape, tokens: int, window: int, rows: Callable[[int, int], npt.NDArray[np.float32]]
) -> list[LayerState]:
    """The layers of a state of `tokens`, each tensor as `rows` gives it for its height and width."""
    layers = []
    for ratio in shape.compress_ratios:
        layer = LayerState(rows(min(tokens, window), shape.head_dim))
        if ratio:
            halves = 2 if ratio == 4 else 1
            layer.compressed = rows(tokens // ratio, shape.head_dim)
            layer.frontier_kv = rows(halves * ratio, halves * shape.head_dim)
            layer.frontier_score = rows(halves * ratio, halves * shape.head_dim)
        if ratio == 4:
            layer.index_rows = rows(tokens // 4, shape.index_dim)
            layer.index_frontier_kv = rows(8, 2 * shape.index_dim)
            layer.index_frontier_score = rows(8, 2 * shape.index_dim)
        layers.append(layer)
    return layers


def payload_of(state: SessionState, layout: PayloadLayout) -> bytes:
    file = io.BytesIO()
    assert write_payload(file, state, layout) == len(file.getvalue())
    return file.getvalue()
