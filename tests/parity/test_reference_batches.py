"""A prefill of any length leaves the state of its tokens one by one, frontiers included.

The C engine's GPU build rebuilds the ratio-4 frontier from the last four tokens after a cold prefill, which
is wrong for lengths that are no multiple of 4: here every length must be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from shared.kv.payload import LayerState, PayloadLayout, SessionState, read_payload
from shared.model.open import open_model
from shared.model.reference import Reference
from shared.model.reference_engine import ReferenceEngine, load
from shared.model.reference_session import ReferenceSession
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from tests.support.golden import golden_arrays, golden_json, tiny_q2
from tests.support.limits import FLOAT_LIMIT
from tests.support.state_compare import assert_float_equal, assert_one_step

TOKENS: list[int] = golden_json("prompts.json")["random"]["ids"]
QUICK = (*range(1, 10), 11, 14, 17, 20, 126, 127, 128, 129, 131, 133, 255, 256, 259, 300)


class Stepped(NamedTuple):
    """A `float` engine and the states after single tokens, by length."""

    engine: ReferenceEngine
    states: dict[int, SessionState]


def state_of(session: ReferenceSession, engine: ReferenceEngine) -> SessionState:
    content = session.snapshot()
    layout = PayloadLayout(engine.shape, session.context, engine.shape.window, session.context)
    return read_payload(BytesIO(content), len(content), layout)


def assert_equal(ours: SessionState, expected: SessionState) -> None:
    assert ours.tokens == expected.tokens
    np.testing.assert_allclose(ours.logits, expected.logits, rtol=0, atol=FLOAT_LIMIT)
    assert_float_equal(ours.layers, expected.layers)


def step_through(lengths: tuple[int, ...]) -> Stepped:
    engine = load(tiny_q2(), activation="float")
    session = engine.open_session(512)
    session.sync(TOKENS[:1])
    states = {}
    for length in range(1, max(lengths) + 1):
        if length > 1:
            session.submit(TOKENS[length - 1])
        if length in lengths:
            states[length] = state_of(session, engine)
    return Stepped(engine, states)


@pytest.fixture(scope="module")
def in_float() -> Iterator[Stepped]:
    stepped = step_through(QUICK)
    yield stepped
    stepped.engine.close()


@pytest.mark.parametrize("length", QUICK)
def test_a_cold_prefill_equals_single_tokens(length: int, in_float: Stepped) -> None:
    session = in_float.engine.open_session(512)
    session.sync(TOKENS[:length])
    assert_equal(state_of(session, in_float.engine), in_float.states[length])


@pytest.mark.parametrize("length", [5, 6, 7, 126])
def test_what_follows_an_unaligned_prefill_is_right(length: int, in_float: Stepped) -> None:
    """The next two compressed rows of a ratio-4 layer depend on the frontier."""
    session = in_float.engine.open_session(512)
    session.sync(TOKENS[:length])
    for end in (length + 1, 133 if length > 100 else 11):
        session.sync(TOKENS[:end])
        if end in in_float.states:
            assert_equal(state_of(session, in_float.engine), in_float.states[end])


@pytest.mark.parametrize("layer", range(6))
def test_rounded_rows_of_a_layer_are_a_step_away_at_most(layer: int) -> None:
    """Layer by layer with stored inputs: from layer to layer a single flipped rounding would spread."""
    file = open_model(tiny_q2())
    reference = Reference(ReferenceWeights(file.gguf, file.shape), file.shape)
    golden = golden_arrays("layers-tiny-q2-medium.npz")
    streams = golden["hc_after_layer_kv"][layer - 1] if layer else reference.embed(golden["tokens"][:144])
    states: list[tuple[list[LayerState], npt.NDArray[np.float32]]] = []
    for chunk in (144, 1):
        state, outputs = ReferenceState(reference.shape, 512), []
        for start in range(0, 144, chunk):
            output, step = reference.attention_half(layer, streams[start : start + chunk], state)
            state.layers[layer].commit(state.position, step)
            state.position += chunk
            outputs.append(output)
        states.append((state.export(), np.concatenate(outputs)))
    file.close()
    (batched, batched_output), (stepped, stepped_output) = states
    assert_one_step([batched[layer]], [stepped[layer]], reference.shape.rotary_dim)
    # Most positions have no flipped rounding and are as near as in float mode. How near depends on the order
    # in which the processor's BLAS kernels add: medians of 5e-7 to 5e-6 with those of three families.
    found = np.abs(batched_output - stepped_output).max(axis=(1, 2))
    assert np.median(found) <= FLOAT_LIMIT
    assert found.max() <= 1e-3


@pytest.mark.long
def test_every_length_to_300() -> None:
    stepped = step_through(tuple(range(1, 301)))
    for length in range(1, 301):
        session = stepped.engine.open_session(512)
        session.sync(TOKENS[:length])
        assert_equal(state_of(session, stepped.engine), stepped.states[length])
    stepped.engine.close()
