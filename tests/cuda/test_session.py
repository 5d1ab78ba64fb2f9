"""The session protocol on the CUDA backend: reuse, going back, saving, cancelling, look-ahead."""

from __future__ import annotations

import io
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from ds4cuda.engine import load
from shared.errors import Cancelled, ContextFullError, SessionInvalid
from shared.generate import Generation, GenerationSettings
from shared.kv.payload import HEADER_WORDS
from shared.model.reference_engine import load as load_reference
from shared.sampling import GREEDY, Sampling, choose
from shared.session import Session
from tests.cuda.cupy_standin import CupyStandin
from tests.cuda.models import engine, needs_simulator, open_engine
from tests.support.golden import golden_logits, model_path
from tests.support.lookahead_contract import check_look_ahead
from tests.support.plain_turn import PlainTurn

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
    """A choice is handed on unread; one wait in each token's time tells the one before."""
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


CHOICES = [
    (GREEDY, ["pick"]),
    (Sampling(), ["draw_best", "draw_weigh", "draw_in_order"]),
    (Sampling(0.8, top_p=0.9, top_k=20), ["draw_best", "draw_weigh", "draw_from_top"]),
]


def test_a_token_costs_one_wait_and_one_graph() -> None:
    """In the generation loop, over 50 tokens; only choices are computed here, from the same logits each."""
    cupy = CupyStandin(runs=["begin_step", "keep_logits", *(name for _, names in CHOICES for name in names)])
    built = load(model_path("tiny-q2"), context=64, cupy=cupy)
    built._model.scratch("logits", 1280)[...] = np.random.default_rng(0).standard_normal(1280) * 3
    for sampling, launched in CHOICES:
        session = built.open_session(64)
        session.sync(PROMPT)
        settings = GenerationSettings(sampling, 50, seed=7)
        generation = Generation(session, built.tokenizer, cast("Any", PlainTurn()), settings)
        waits, asked = cupy.waits, []
        for number, _ in enumerate(generation):
            if number == 0:  # the first step is launched piece by piece and captured
                asked = cupy.asked = []
        assert cupy.waits - waits == 50
        assert asked == [*launched, "download", "begin_step", "graph"] * 49
        assert len(generation.tokens) == 50
        assert (len(set(generation.tokens)) == 1) == sampling.greedy


def test_an_interrupted_step_cannot_be_undone() -> None:
    """What it overwrote is what an undo before it would have returned to."""
    session: Any = prepared()
    session.submit(5)
    steps = session._buffers.steps

    def interrupted(position: int) -> None:
        raise KeyboardInterrupt

    steps.run, before = interrupted, session.logits()
    with pytest.raises(KeyboardInterrupt):
        session.submit(6)
    with pytest.raises(SessionInvalid, match="no submitted token"):
        session.undo()
    del steps.run
    assert np.array_equal(session.logits(), before)
    session.submit(6)
    other = prepared()
    other.submit(5)
    other.submit(6)
    assert session.snapshot() == other.snapshot()


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(top_p=0.5), Sampling(top_k=2)])
def test_choices_under_a_mask(sampling: Sampling) -> None:
    session = prepared()
    logits = session.logits()
    allowed = np.zeros(len(logits), bool)
    allowed[[3, 700, 701]] = True
    assert session.pick(sampling, 0.3, allowed).value() == choose(logits, sampling, 0.3, allowed)
    assert session.pick(sampling, 0.9).value() == choose(logits, sampling, 0.9)
    with pytest.raises(ValueError, match="allows no token"):
        session.pick(sampling, allowed=np.zeros(len(logits), bool))
    with pytest.raises(ValueError, match="entries"):
        session.pick(sampling, allowed=allowed[1:])


def test_a_closed_session_is_refused() -> None:
    session = prepared()
    session.close()
    for use in (
        session.logits,
        session.undo,
        session.snapshot,
        lambda: session.submit(1),
        session.invalidate,
    ):
        with pytest.raises(SessionInvalid, match="closed"):
            use()


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
