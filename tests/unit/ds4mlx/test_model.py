"""The forward pass as a whole: its stages, and the storage that a GPU uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shared.model import reference
from shared.model.open import open_model
from tests.support.golden import golden_arrays, golden_logits, model_path
from tests.support.limits import FLOAT_LIMIT, assert_float, differences

mx = pytest.importorskip("mlx.core")

from ds4mlx.adoption import TensorBytes  # noqa: E402
from ds4mlx.linear import FloatMatrix  # noqa: E402
from ds4mlx.model import STAGES, Model, Streams  # noqa: E402
from ds4mlx.plan import Storage  # noqa: E402
from ds4mlx.step import Step  # noqa: E402
from ds4mlx.weights import WeightReader  # noqa: E402
from tests.support.mlx_models import Run, model  # noqa: E402


def test_the_stages_are_those_of_the_reference() -> None:
    assert tuple(STAGES) == reference.STAGES


def test_stages_run_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def recorded(name: str) -> None:
        original = getattr(Model, name)

        def call(*arguments: Any) -> Any:
            if name not in called:
                called.append(name)
            return original(*arguments)

        monkeypatch.setattr(Model, name, call)

    methods = list(dict.fromkeys(STAGES.values()))
    for method in methods:
        recorded(method)
    Run(model()).feed([1, 2, 3, 4])
    assert called == methods


@pytest.mark.parametrize("name", ["tiny-q2", pytest.param("tiny-q4", marks=pytest.mark.long)])
def test_packed_matrices_and_raw_experts_give_the_same_logits(name: str) -> None:
    """What the GPU uses: Q8_0 repacked, F16 kept, experts expanded on use."""
    golden = golden_logits(name, "medium")
    with open_model(model_path(name)) as file:
        source = TensorBytes(file.gguf, adopt=False, notes=[])
        weights = WeightReader(file.gguf, file.shape, source, Storage(True, False, file.shape.streams)).read()
        run = Run(Model(weights, file.shape, "float"))
    tokens = golden["tokens"].tolist()
    logits = np.concatenate(
        [run.feed(tokens[:150]), run.feed_in(tokens[150:160], 3), run.feed_in(tokens[160:], 1)]
    )
    assert_float(logits[golden["positions"]], golden["logits_float"])


def test_each_layer_on_golden_input() -> None:
    golden, subject = golden_arrays("layers-tiny-q2-medium.npz"), model()
    tokens = golden["tokens"].tolist()
    stored = golden["hc_after_layer_kv"]
    count = stored.shape[1]
    ids = mx.array(tokens[:count], mx.int32)
    state = subject.open_state(400)
    step = Step(subject.shape, 0, count, state.ring_rows)
    streams = subject.embed(ids)
    for layer, expected in enumerate(stored):
        output, _ = subject.layer(layer, state, streams, ids, step)
        found = np.abs(np.array(subject.settled(output)) - expected).max(axis=(1, 2))
        assert np.median(found) <= 1e-5, layer
        assert found.max() <= 1e-3, layer
        streams = Streams(mx.array(expected))


@pytest.mark.parametrize("mode", ["kv", "float"])
def test_streams_after_the_last_position(mode: str) -> None:
    golden, subject = golden_arrays("layers-tiny-q2-medium.npz"), model(activation=mode)
    after: list[mx.array] = []
    ids = mx.array(golden["tokens"].tolist(), mx.int32)
    subject.forward(
        ids, subject.open_state(400), lambda _, streams, __: after.append(subject.settled(streams.last())[0])
    )
    found = np.abs(np.array(mx.stack(after)) - golden[f"hc_after_layer_last_{mode}"])
    assert found.max() <= (FLOAT_LIMIT if mode == "float" else 5e-3)


def test_an_expert_named_twice_counts_twice() -> None:
    subject = model()
    weights = subject.weights.layers[1]
    x = mx.array(np.random.default_rng(2).standard_normal((20, subject.shape.embedding_width)), mx.float32)
    shares = mx.full((20, 2), 0.5)
    twice = mx.full((20, 2), 3, mx.int32)
    once, whole = mx.full((20, 1), 3, mx.int32), mx.ones((20, 1))
    hidden = mx.zeros((20, subject.shape.expert_width))
    expected = np.array(subject.experts(weights, x, once, whole, hidden))
    assert np.abs(np.array(subject.experts(weights, x, twice, shares, hidden)) - expected).max() <= 1e-5
    single = subject.experts(weights, x[:1], twice[:1], shares[:1], hidden[:1])
    assert np.abs(np.array(single) - expected[:1]).max() <= 1e-5


def test_the_sum_of_route_weights_has_a_floor() -> None:
    subject = model()
    width, experts = subject.shape.embedding_width, subject.shape.expert_count
    hopeless = FloatMatrix(mx.full((width, experts), -60.0 / width))
    weights = replace(subject.weights.layers[1], router=hopeless)
    _, shares, _ = subject.route(weights, mx.ones((1, width)), mx.array([7], mx.int32))
    expected = np.exp(-30.0) * 2.0**14 * subject.shape.expert_weight_scale
    assert np.allclose(np.array(shares), expected, rtol=1e-3)


def test_the_models_own_rounding_matters() -> None:
    """Leaving out the model's rounding moves logits by far more than noise."""
    tokens = golden_logits("tiny-q2", "short")["tokens"].tolist()
    kv, plain = (Run(model(activation=mode)).feed(tokens) for mode in ("kv", "float"))
    assert np.median(differences(kv, plain)) > 1e-3
