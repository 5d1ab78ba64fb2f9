"""The session protocol on the CUDA backend: reuse, going back, saving, cancelling, look-ahead."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import pytest

from shared.errors import Cancelled, ContextFullError, SessionInvalid
from shared.kv.payload import HEADER_WORDS
from shared.model.reference_engine import load as load_reference
from shared.sampling import GREEDY, Sampling
from shared.session import Session
from tests.cuda.models import engine, needs_simulator, open_engine
from tests.support.golden import golden_logits, model_path
from tests.support.lookahead_contract import check_look_ahead

pytestmark = needs_simulator
PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()[:10]

# Bytes that also tell the sizes of a writer's own buffers.
HEADER = 4 * HEADER_WORDS


def opened(context: int = 300) -> Session:
    return engine().open_session(context)


@cache
def snapshot_of_prompt() -> bytes:
    session = opened()
    session.sync(PROMPT)
    return session.snapshot()


def prepared() -> Session:
    """A session that holds the prompt."""
    session = opened()
    session.restore(snapshot_of_prompt())
    return session


def test_only_a_suffix_is_evaluated() -> None:
    session, done = opened(), []
    assert session.sync(PROMPT[:7], quantum=4, progress=lambda *of: done.append(of)) == (0, 7)
    assert done == [(0, 7), (4, 7), (7, 7)]
    assert session.sync(PROMPT) == (7, 3)
    assert session.sync(PROMPT) == (10, 0)
    assert session.tokens == PROMPT
    whole = prepared()
    np.testing.assert_allclose(session.logits(), whole.logits(), atol=2e-3)
    assert session.sync(PROMPT[1:3]) == (0, 2)


def test_undo_leaves_no_trace() -> None:
    session = prepared()
    before = session.snapshot()
    for _ in range(3):
        session.submit(5)
        session.undo()
        assert session.snapshot() == before
    with pytest.raises(SessionInvalid, match="no submitted token"):
        session.undo()
    session.submit(6)
    other = prepared()
    other.submit(6)
    assert session.snapshot() == other.snapshot()


def test_marks_are_returned_to() -> None:
    session = prepared()
    mark, before = session.mark(), session.snapshot()
    assert mark.position == len(PROMPT)
    session.sync([*PROMPT, 3, 4, 5])
    later = session.mark()
    session.rewind(mark)
    assert session.snapshot() == before
    with pytest.raises(SessionInvalid):
        session.rewind(later)


def test_a_cancelled_step_leaves_the_session_as_it_was() -> None:
    session = prepared()
    before = session.snapshot()
    answers = iter([False, False, True])
    with pytest.raises(Cancelled):
        session.sync([*PROMPT, *PROMPT], cancelled=lambda: next(answers))
    assert session.snapshot() == before
    session.submit(7)
    other = prepared()
    other.submit(7)
    assert session.snapshot() == other.snapshot()


def test_a_full_context_is_refused() -> None:
    session = opened(4)
    with pytest.raises(ContextFullError):
        session.sync(PROMPT[:4])
    session.sync(PROMPT[:3])
    session.submit(1)
    with pytest.raises(ContextFullError):
        session.submit(1)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        opened().sync([99999])


def test_a_step_waits_for_nothing_but_the_token_before() -> None:
    """A greedy choice is handed on unread; one wait in each token's time tells the one before."""
    built, cupy = open_engine()
    session = built.open_session(64)
    session.sync(PROMPT)
    picked = session.pick(GREEDY)
    session.submit(picked)
    waits, chosen = cupy.waits, [picked]
    for _ in range(2):
        chosen.append(session.pick(GREEDY))
        session.submit(chosen[-1])
    assert cupy.waits - waits == 2
    plain = prepared()
    for token in chosen:
        assert plain.logits().argmax() == token.value()
        plain.submit(token.value())
    np.testing.assert_array_equal(session.logits(), plain.logits())
    assert session.tokens == plain.tokens


def test_masks_and_draws() -> None:
    session = prepared()
    logits = session.logits()
    allowed = np.zeros(len(logits), bool)
    allowed[[3, 700]] = True
    best = 3 if logits[3] >= logits[700] else 700
    assert session.pick(GREEDY, allowed=allowed).value() == best
    assert session.pick(Sampling(temperature=1.0), 0.3, allowed).value() in (3, 700)
    with pytest.raises(ValueError, match="allows no token"):
        session.pick(GREEDY, allowed=np.zeros(len(logits), bool))


def test_states_are_exchanged_with_the_reference() -> None:
    """Each loads what the other saved, and goes on alike."""
    ours = prepared()
    with_reference = load_reference(model_path("tiny-q2"), prefill_chunk=64)
    theirs = with_reference.open_session(300)
    theirs.sync(PROMPT)
    taken = opened()
    taken.restore(theirs.snapshot())
    assert taken.snapshot()[HEADER:] == theirs.snapshot()[HEADER:]
    handed = with_reference.open_session(300)
    handed.load(io.BytesIO(ours.snapshot()), ours.payload_bytes())
    assert handed.snapshot()[HEADER:] == ours.snapshot()[HEADER:]
    for session in (taken, handed, theirs):
        session.submit(8)
    np.testing.assert_allclose(taken.logits(), theirs.logits(), atol=2e-3)
    np.testing.assert_allclose(handed.logits(), theirs.logits(), atol=2e-3)
    with_reference.close()


@pytest.mark.long
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.8)])
def test_the_look_ahead_contract(sampling: Sampling) -> None:
    check_look_ahead(prepared, engine().tokenizer, PROMPT, length=3, sampling=sampling)


@pytest.mark.long
def test_the_order_of_threads_does_not_matter() -> None:
    """Bit for bit, with every check of the simulator: what a GPU computes may not change from run to run."""
    snapshots = []
    for check, seed in (("full", 1), ("full", 2), ("fast", 0)):
        session = open_engine(check=check, seed=seed)[0].open_session(64)
        session.sync(PROMPT)
        session.submit(3)
        snapshots.append(session.snapshot())
    assert snapshots[0] == snapshots[1] == snapshots[2]
