"""Steering on MLX against the reference, and outputs that directions are found from.

Without the rounding of rows, which makes steps of the smallest differences.
"""

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.engine import load
from ds4mlx.steering import OutputEdit, project_out
from shared.model.reference_engine import load as load_reference
from shared.steering import steering as shared_steering
from tests.support.golden import golden_logits, tiny_q2
from tests.support.steering import steering_of

PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()[:10]


@pytest.fixture(scope="module")
def engine():
    return load(tiny_q2(), activation="float")


@pytest.fixture(scope="module")
def reference():
    return load_reference(tiny_q2(), activation="float")


@pytest.fixture(autouse=True)
def steer_nothing(engine, reference):
    yield
    for each in (engine, reference):
        each.steer(steering_of(each.shape))


def _logits(engine, tokens=PROMPT, *, singly=False):
    session = engine.open_session(64)
    session.sync(tokens[:1] if singly else tokens)
    for token in tokens[1:] if singly else ():
        session.submit(token)
    return session.logits()


@pytest.mark.parametrize("kind", [mx.float32, mx.float16])
def test_the_formula_in_either_precision(kind):
    """In float16 the products would not even be finite."""
    random = np.random.default_rng(0)
    output = mx.array(400 * random.standard_normal((3, 96)).astype(np.float32)).astype(kind)
    direction = random.standard_normal(96).astype(np.float32)
    wide = np.array(output.astype(mx.float32))
    found = project_out(output, mx.array(direction), 0.01)
    assert found.dtype == kind
    expected = shared_steering.project_out(wide, direction, 0.01)
    tolerance = 1e-3 if kind == mx.float16 else 1e-6
    np.testing.assert_allclose(
        np.array(found.astype(mx.float32)), expected, rtol=tolerance, atol=tolerance * 400
    )


@pytest.mark.parametrize(
    "scales",
    [
        (-0.5, 0.75),
        pytest.param((1.0, 0.0), marks=pytest.mark.long),
        pytest.param((0.0, -1.5), marks=pytest.mark.long),
    ],
)
def test_logits_are_those_of_the_reference(engine, reference, scales):
    plain = _logits(engine)
    for each in (engine, reference):
        each.steer(steering_of(each.shape, *scales))
    found = _logits(engine)
    assert np.abs(found - plain).max() > 0.01
    np.testing.assert_allclose(found, _logits(reference), rtol=0, atol=2e-5)
    np.testing.assert_allclose(_logits(engine, singly=True), found, rtol=0, atol=2e-5)


def test_zero_scales_are_the_plain_model(engine):
    plain = _logits(engine)
    engine.steer(steering_of(engine.shape, 1, 1))
    engine.steer(steering_of(engine.shape))
    assert np.array_equal(_logits(engine), plain)
    output = mx.zeros((1, engine.shape.embedding_width))
    assert engine._model.edit_output(0, "ffn_out", output) is output


def test_a_component_with_scale_0_is_left_alone():
    edit, output = OutputEdit(), mx.ones((2, 8))
    edit.use(shared_steering.Steering(_ones(), feed_forward=1))
    assert edit(1, "attn_out", output) is output
    assert edit(1, "ffn_out", output) is not output


def _ones():
    return shared_steering.Directions.of(np.ones((2, 8)))


def test_another_scale_counts_from_the_next_prompt_on(engine, reference):
    """The live session starts anew, and no state of before is left in it."""
    engine.steer(steering_of(engine.shape, 0, 1.0))
    session = engine.open_session(64)
    session.sync(PROMPT)
    engine.steer(engine.steering.with_feed_forward(-2.0))
    assert session.position == 0
    session.sync(PROMPT)
    reference.steer(steering_of(engine.shape, 0, -2.0))
    np.testing.assert_allclose(session.logits(), _logits(reference), rtol=0, atol=2e-5)


@pytest.mark.long
def test_a_state_comes_back_under_its_steering(engine):
    engine.steer(steering_of(engine.shape, 0, 1.0))
    session, other = engine.open_session(64), engine.open_session(64)
    session.sync(PROMPT)
    other.restore(session.snapshot())
    session.submit(5)
    other.submit(5)
    assert np.array_equal(session.logits(), other.logits())


@pytest.mark.parametrize("component", [pytest.param("attn_out", marks=pytest.mark.long), "ffn_out"])
def test_last_outputs_are_those_of_the_reference(engine, reference, component):
    found, wanted = (
        each.last_outputs(each.open_session(64), PROMPT, component) for each in (engine, reference)
    )
    assert found.dtype == np.float32
    assert found.shape == (engine.shape.layer_count, engine.shape.embedding_width)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert engine._model.edit_output._rows == {}
