"""Steering on CUDA: the reference's numbers, what is launched, and outputs that directions come from."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ds4cuda.engine import load
from ds4cuda.graph import DecodeSteps
from shared.model.reference_engine import ReferenceEngine
from shared.model.reference_engine import load as load_reference
from shared.steering.directions import Component
from shared.steering.steering import Steering
from tests.cuda.cupy_standin import CupyStandin
from tests.cuda.models import needs_simulator, open_engine
from tests.support.golden import golden_logits, model_path
from tests.support.steering import steering_of

pytestmark = needs_simulator
PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()[:3]
MORE = [5, 9]


@cache
def reference() -> ReferenceEngine:
    """Without the rounding of rows, which makes steps of the smallest differences."""
    return load_reference(model_path("tiny-q2"), activation="float")


def expected(steering: Steering, tokens: list[int]) -> npt.NDArray[np.float32]:
    reference().steer(steering)
    session = reference().open_session(64)
    session.sync(tokens)
    return session.logits()


def continued(session: Any) -> npt.NDArray[np.float32]:
    """Logits after the prompt and after each token more, [3, vocabulary]."""
    session.sync(PROMPT)
    logits = [session.logits()]
    for token in MORE:
        session.submit(token)
        logits.append(session.logits())
    return np.stack(logits)


@pytest.mark.long
def test_prompts_and_captured_steps_are_steered_as_by_the_reference() -> None:
    """The second steering finds the graphs of the first."""
    engine, cupy = open_engine("tiny-q2", "float")
    session = engine.open_session(64)
    plain = continued(session)
    assert "steer" not in cupy.launches
    for scales in ((-0.5, 0.75), (1.0, -1.5)):
        steering = steering_of(engine.shape, *scales)
        engine.steer(steering)
        assert session.position == 0
        found = continued(session)
        assert np.abs(found - plain).max() > 0.01
        for count, logits in enumerate(found):
            wanted = expected(steering, [*PROMPT, *MORE[:count]])
            np.testing.assert_allclose(logits, wanted, rtol=0, atol=5e-5)
    engine.steer(steering_of(engine.shape))
    session.sync(PROMPT)
    assert np.array_equal(session.logits(), plain[0])


def test_another_scale_needs_no_other_graph() -> None:
    """Another component does. Nothing is launched, compiled or allocated for scales of 0."""
    cupy = CupyStandin(runs=())
    engine = load(model_path("tiny-q2"), context=64, prefill_chunk=64, cupy=cupy)
    model, layers = engine._model, engine.shape.layer_count
    steps = DecodeSteps(model, model.open_state(64), model.device.zeros((2, 1280), np.float32))

    def run(attention: float, feed_forward: float) -> tuple[str, int]:
        """How the step was launched, and how many of its launches steer."""
        engine.steer(steering_of(engine.shape, attention, feed_forward))
        asked, launched = len(cupy.asked), len(cupy.launches)
        steps.run(3)
        how = "graph" if cupy.asked[asked:] == ["graph"] else "pieces"
        return how, cupy.launches[launched:].count("steer")

    assert run(0, 0) == ("pieces", 0)
    assert model.edit_output._directions is None
    assert run(0, 1) == ("pieces", layers)
    assert [run(0, -2), run(0, 0), run(0, 0.5)] == [("graph", layers), ("graph", 0), ("graph", layers)]
    assert [run(1, 1), run(2, 3), run(0, 1)] == [
        ("pieces", 2 * layers),
        ("graph", 2 * layers),
        ("graph", layers),
    ]


@pytest.mark.long
def test_last_outputs_are_those_of_the_reference() -> None:
    engine, _ = open_engine("tiny-q2", "float")
    reference().steer(steering_of(engine.shape))
    session, other = engine.open_session(64), reference().open_session(64)
    components: tuple[Component, ...] = ("attn_out", "ffn_out")
    for component in components:
        wanted = reference().last_outputs(other, PROMPT, component)
        found = engine.last_outputs(session, PROMPT, component)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
        assert engine._model.edit_output._rows is None
