"""Single functions and single layers of the NumPy reference against stored inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shared.model.open import ModelFile, open_model
from shared.model.reference import Activation, Reference
from shared.model.reference_math import hyper_connection_weights
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from shared.quant.rounding import hadamard128, round_f16, round_fp4, round_fp8_row
from tests.support.golden import golden_arrays, tiny_q2

LAYERS = golden_arrays("layers-tiny-q2-medium.npz")
VECTORS = golden_arrays("vectors.npz")


@pytest.fixture(scope="module")
def model() -> Iterator[ModelFile]:
    with open_model(tiny_q2()) as file:
        yield file


@pytest.fixture(scope="module")
def weights(model: ModelFile) -> ReferenceWeights:
    return ReferenceWeights(model.gguf, model.shape)


def test_fp8_rows_are_exact() -> None:
    np.testing.assert_array_equal(round_fp8_row(VECTORS["fp8_in"], 64), VECTORS["fp8_out"])


def test_indexer_rows_are_exact() -> None:
    np.testing.assert_array_equal(round_fp4(hadamard128(VECTORS["indexer_in"])), VECTORS["indexer_out"])


def test_f16_rows_are_exact() -> None:
    np.testing.assert_array_equal(round_f16(VECTORS["f16_in"]), VECTORS["f16_out"])


def test_hyper_connection_weights() -> None:
    for mix, scale, base, expected in zip(
        VECTORS["hc_mix"], VECTORS["hc_scale"], VECTORS["hc_base"], VECTORS["hc_out"], strict=True
    ):
        pre, post, combine = hyper_connection_weights(
            mix[None], scale, base, streams=4, rounds=20, epsilon=1e-6
        )
        ours = np.concatenate((pre[0], post[0], combine.ravel()))
        np.testing.assert_allclose(ours, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize("layer", range(6))
def test_one_layer_alone(layer: int, model: ModelFile, weights: ReferenceWeights) -> None:
    """Fed with the stored streams of the layer before; one flipped rounding may move what sees that row."""
    tokens = LAYERS["tokens"][:144].astype(np.int64)
    reference, state = Reference(weights, model.shape), ReferenceState(model.shape, 512)
    streams = LAYERS["hc_after_layer_kv"][layer - 1] if layer else reference.embed(tokens)
    streams, _ = reference.attention_half(layer, streams, state)
    streams = reference.feed_forward_half(layer, streams, tokens)
    if layer < 5:
        expected, positions = LAYERS["hc_after_layer_kv"][layer], np.arange(144)
    else:
        expected, positions = LAYERS["hc_after_last_layer_kv"], np.arange(0, 144, 4)
    found = np.abs(streams[positions] - expected).max(axis=(1, 2))
    assert np.median(found) <= 3e-6
    assert np.quantile(found, 0.99) <= 3e-4
    assert found.max() <= 1e-3


@pytest.mark.parametrize(("mode", "limit"), [("float", 1e-5), ("kv", 2e-3)])
def test_every_half_layer_at_the_last_position(
    mode: Activation, limit: float, model: ModelFile, weights: ReferenceWeights
) -> None:
    tokens = LAYERS["tokens"].astype(np.int64)
    reference, state = Reference(weights, model.shape, mode), ReferenceState(model.shape, 512)
    streams = reference.embed(tokens)
    for layer in range(model.shape.layer_count):
        streams, _ = reference.attention_half(layer, streams, state)
        half = np.abs(streams[-1] - LAYERS[f"hc_after_attn_last_{mode}"][layer]).max()
        streams = reference.feed_forward_half(layer, streams, tokens)
        whole = np.abs(streams[-1] - LAYERS[f"hc_after_layer_last_{mode}"][layer]).max()
        assert max(half, whole) <= limit, (layer, half, whole)
