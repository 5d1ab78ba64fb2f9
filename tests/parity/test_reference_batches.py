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

from shared.kv.payload import PayloadLayout, SessionState, read_payload
from shared.model.open import open_model
from shared.model.reference import Reference
from shared.model.reference_engine import ReferenceEngine, load
from shared.model.reference_session import ReferenceSession
from shared.model.reference_state import LayerCache, ReferenceState
from shared.model.reference_weights import ReferenceWeights
from tests.support.golden import golden_arrays, golden_json, tiny_q2
from tests.support.limits import FLOAT_LIMIT
from tests.support.state_compare import assert_float_equal, assert_one_step

Array = npt.NDArray[np.float32]
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
    whole = ReferenceState(reference.shape, 512)
    batched, step = reference.attention_half(layer, streams, whole)
    whole.layers[layer].commit(0, step)
    whole.position = len(streams)
    stepped, state = _one_by_one(reference, layer, streams)
    # Rows that are flipped are seen by all later positions. Which ones are depends on the order in which the
    # processor's BLAS kernels add; with the same rows in the cache only that order is left.
    seeing_same, _ = _one_by_one(reference, layer, streams, (whole.layers[layer], step.raw))
    file.close()
    assert_one_step([whole.export()[layer]], [state.export()[layer]], reference.shape.rotary_dim)
    assert np.abs(batched - stepped).max() <= 1e-3
    assert np.median(np.abs(batched - seeing_same).max(axis=(1, 2))) <= 2e-6


def _one_by_one(
    reference: Reference, layer: int, streams: Array, cached: tuple[LayerCache, Array] | None = None
) -> tuple[Array, ReferenceState]:
    """Outputs of a layer for one position after another, and the state; `cached` has compressed and raw rows
    that later positions see instead of those of their own."""
    state, outputs = ReferenceState(reference.shape, 512), []
    for position in range(len(streams)):
        output, step = reference.attention_half(layer, streams[position : position + 1], state)
        cache = state.layers[layer]
        cache.commit(position, step)
        state.position = position + 1
        if cached is not None:
            rows, raw = cached
            cache.write_raw(position, raw[position : position + 1])
            count = cache.count(position + 1)
            cache.compressed[:count] = rows.compressed[:count]
            cache.index_rows[:count] = rows.index_rows[:count]
        outputs.append(output)
    return np.concatenate(outputs), state


@pytest.mark.long
def test_every_length_to_300() -> None:
    stepped = step_through(tuple(range(1, 301)))
    for length in range(1, 301):
        session = stepped.engine.open_session(512)
        session.sync(TOKENS[:length])
        assert_equal(state_of(session, stepped.engine), stepped.states[length])
    stepped.engine.close()
