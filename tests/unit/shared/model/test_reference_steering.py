"""Steering in the reference: where it acts, that nothing else changes, and that no state outlives it."""

import numpy as np
import pytest

from shared.errors import SessionInvalid
from shared.model.reference_engine import load
from shared.steering.steering import project_out
from tests.support.golden import golden_logits, tiny_q2
from tests.support.steering import steering_of

PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()[:10]


@pytest.fixture
def engine():
    return load(tiny_q2())


def _logits(engine, tokens=PROMPT):
    session = engine.open_session(64)
    session.sync(tokens)
    return session.logits()


def test_each_component_is_steered_behind_its_output_and_before_the_streams():
    """Against a forward pass put together here from the stages; without the model's own rounding, which
    makes steps of the smallest differences."""
    engine = load(tiny_q2(), activation="float")
    model, shape = engine._reference, engine.shape
    steering = steering_of(shape, 0.75, -1.5)
    engine.steer(steering)
    found = _logits(engine)
    engine.steer(steering_of(shape))
    plain_attention, plain_shared = model.attention_output, model.shared_expert

    def attention_output(layer, heads, rope):
        output = plain_attention(layer, heads, rope)
        return project_out(output, steering.directions.values[layer], 0.75)

    def shared_expert(layer, hidden):
        """What has to be added to the routed experts' output to give the steered sum."""
        routed = model.experts(layer, hidden, *routes.pop())
        whole = routed + plain_shared(layer, hidden)
        return project_out(whole, steering.directions.values[layer], -1.5) - routed

    routes, plain_route = [], model.route

    def route(*arguments):
        routes.append(plain_route(*arguments))
        return routes[-1]

    model.attention_output, model.shared_expert, model.route = attention_output, shared_expert, route
    np.testing.assert_allclose(found, _logits(engine), rtol=0, atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("scales", [(0.5, 0.0), (0.0, 0.5)])
def test_each_scale_changes_the_logits(engine, scales):
    plain = _logits(engine)
    engine.steer(steering_of(engine.shape, *scales))
    assert np.abs(_logits(engine) - plain).max() > 0.01


@pytest.mark.long
def test_zero_scales_are_the_plain_model(engine):
    plain = _logits(engine)
    engine.steer(steering_of(engine.shape, 1, 1))
    engine.steer(steering_of(engine.shape, 0.0, -0.0))
    assert engine._reference.steering is None
    assert np.array_equal(_logits(engine), plain)


def test_a_prompt_at_once_and_token_by_token():
    engine = load(tiny_q2(), activation="float")
    engine.steer(steering_of(engine.shape, 1.0, -1.0))
    session = engine.open_session(64)
    session.sync(PROMPT[:1])
    for token in PROMPT[1:]:
        session.submit(token)
    np.testing.assert_allclose(session.logits(), _logits(engine), rtol=0, atol=2e-5)


def test_another_steering_leaves_no_state(engine):
    engine.steer(steering_of(engine.shape, 0, 1.0))
    session, closed = engine.open_session(64), engine.open_session(64)
    session.sync(PROMPT)
    mark = session.mark()
    closed.close()
    engine.steer(engine.steering.with_feed_forward(-1.0))
    assert session.position == 0
    with pytest.raises(SessionInvalid):
        session.rewind(mark)
    assert session.sync(PROMPT) == (0, len(PROMPT))
    assert np.array_equal(session.logits(), _logits(engine))


@pytest.mark.long
def test_a_state_comes_back_under_its_steering(engine):
    engine.steer(steering_of(engine.shape, 0, 1.0))
    session, other = engine.open_session(64), engine.open_session(64)
    session.sync(PROMPT)
    other.restore(session.snapshot())
    session.submit(5)
    other.submit(5)
    assert np.array_equal(session.logits(), other.logits())


def test_states_are_told_apart(engine):
    plain = engine.fingerprint
    found = {plain}
    for steering in (steering_of(engine.shape, 1), steering_of(engine.shape, 0, 1)):
        engine.steer(steering)
        found.add(engine.fingerprint)
        assert engine.weights_fingerprint == plain
    assert len(found) == 3
    engine.steer(engine.steering.with_feed_forward(0.0))
    assert engine.fingerprint == plain


@pytest.mark.parametrize("component", [pytest.param("attn_out", marks=pytest.mark.long), "ffn_out"])
def test_the_last_outputs_of_a_prompt(engine, component):
    """Those of the last token, from a prompt in two steps, though the session held it already."""
    model, wanted = engine._reference, {}
    session = engine.open_session(64)
    session.sync(PROMPT)
    model.watch_outputs = lambda layer, part, output: wanted.setdefault((part, layer), output[-1])
    session.invalidate()
    session.sync(PROMPT)
    model.watch_outputs = None
    found = engine.last_outputs(session, PROMPT, component)
    assert found.dtype == np.float32
    assert np.array_equal(found, [wanted[component, layer] for layer in range(engine.shape.layer_count)])
    assert session.tokens == PROMPT
    assert model.watch_outputs is None
    engine.prefill_chunk = 8
    again = engine.last_outputs(engine.open_session(64), PROMPT, component)
    np.testing.assert_allclose(again, found, atol=1e-4)
