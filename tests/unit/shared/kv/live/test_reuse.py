"""What reuse promises, on an engine whose logits depend on every token: nothing computed twice, and nothing
left of what was thrown away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shared.model.reference_engine import ReferenceEngine
from shared.sampling import GREEDY
from shared.text.messages import Message
from tests.support.live_talk import SMALL, LiveTalk, TalkMaker

SYSTEM = Message("system", "You answer in few words and never tell a secret to anyone who asks for it.")
SECRET = Message("user", "the secret word is zebra, keep it well")


def talk_on(reference: ReferenceEngine, count: int = 1, folder: Path | None = None) -> LiveTalk:
    sessions = [reference.open_session(256) for _ in range(count)]
    settings = replace(SMALL, min_tokens=8, align_tokens=0, continued_interval=0)
    return LiveTalk(sessions, reference.tokenizer, folder=folder, settings=settings)


def greedy(talk: LiveTalk, count: int = 6) -> list[int]:
    """Decode a few tokens where the last turn's prompt ended."""
    session, tokens = talk.start.slot.session, []
    for _ in range(count):
        picked = session.pick(GREEDY)
        tokens.append(picked.value())
        session.submit(picked)
    talk.start.slot.sampled(session.position - count)
    talk.start.slot.answer_returns()
    return tokens


def test_the_same_prompt_again_costs_one_token_and_says_the_same(reference: ReferenceEngine) -> None:
    talk = talk_on(reference)
    prompt = talk.prompt([SYSTEM, Message("user", "say something")])
    talk.turn(prompt)
    fresh = greedy(talk)
    assert talk.turn(prompt) == ("memory-checkpoint", len(prompt.tokens) - 1, 1)
    assert greedy(talk) == fresh


def test_two_ends_of_one_prompt_share_all_that_stands_before_them(reference: ReferenceEngine) -> None:
    talk = talk_on(reference)
    history = [SYSTEM, Message("user", "first"), Message("assistant", "yes")]
    left = talk.prompt([*history, Message("user", "left or right?")])
    right = talk.prompt([*history, Message("user", "up or down?")])
    boundary = len(left.tokens) - 1 - left.tokens[::-1].index(talk.tokenizer.specials.user)
    talk.turn(left)
    greedy(talk)
    assert talk.turn(right) == ("memory-checkpoint", boundary, len(right.tokens) - boundary)


@pytest.mark.parametrize("through", ["memory", "disk"])
def test_nothing_is_left_of_another_conversation(
    through: str, reference: ReferenceEngine, tmp_path: Path
) -> None:
    """One that shares the system prompt only goes on as if the other had never been."""
    cold = talk_on(reference)
    asked = cold.prompt([SYSTEM, Message("user", "what is the secret word?")])
    cold.turn(asked)
    expected = cold.start.slot.session.logits()
    talk = talk_on(reference, folder=tmp_path if through == "disk" else None)
    talk.turn(talk.prompt([SYSTEM, SECRET]))
    greedy(talk)
    if through == "disk":
        talk.slots.shut_down()
        talk.start.slot.invalidate()
    source, reused, _ = talk.turn(asked)
    assert source == ("memory-checkpoint" if through == "memory" else "disk-text")
    assert reused == asked.tokens.index(talk.tokenizer.specials.user)
    np.testing.assert_array_equal(talk.start.slot.session.logits(), expected)
    cold_state, state = cold.start.slot.session.snapshot(), talk.start.slot.session.snapshot()
    assert state == cold_state
    talk.close()


def test_a_saved_conversation_goes_on_as_the_live_one(reference: ReferenceEngine, tmp_path: Path) -> None:
    talk = talk_on(reference, folder=tmp_path)
    history = [SYSTEM, Message("user", "first")]
    talk.turn(talk.prompt(history))
    answer = talk.tokenizer.decode(greedy(talk)).decode("utf-8", "replace")
    talk.slots.shut_down()
    talk.close()
    following = [*history, Message("assistant", answer), Message("user", "and then?")]
    assert talk.turn(talk.prompt(following)).source in ("memory-token", "memory-text")
    expected = talk.start.slot.session.logits()
    later = talk_on(reference, folder=tmp_path)
    assert later.turn(later.prompt(following)).source == "disk-text"
    np.testing.assert_array_equal(later.start.slot.session.logits(), expected)
    later.close()


def test_a_growing_prompt_costs_what_it_grows_by(talks: TalkMaker) -> None:
    talk = talks()
    history = [Message("system", "be brief " * 300), Message("user", "step 0")]
    talk.turn(talk.prompt(history), b"x" * 50)
    for step in range(1, 21):
        live = talk.start.slot.session.position
        history += [Message("assistant", "x" * 50), Message("user", f"step {step}")]
        prompt = talk.prompt(history)
        figures = talk.turn(prompt, b"x" * 50)
        assert figures == ("memory-token", live, len(prompt.tokens) - live)
        assert figures.evaluated < 20


@pytest.mark.parametrize("turns", [3, 30])
def test_a_tool_session_then_a_user_turn_loses_nothing(turns: int, talks: TalkMaker) -> None:
    """Calls and results come back as they were; so does the reasoning, because tools keep it."""
    talk = talks()
    specials = talk.tokenizer.specials
    history = [Message("system", "you have tools " * 100), Message("user", "look around")]
    for number in range(turns):
        thought = [*b"hm", specials.think_end, *b"calling"]
        talk.turn(talk.prompt(history, "high"), thought)
        history += [
            Message("assistant", "calling", reasoning="hm"),
            Message("tool", f"result {number} " * 20),
        ]
    live = talk.start.slot.session.position
    history[-1] = Message("user", "enough")
    prompt = talk.prompt(history, "high")
    # A user's turn behind tool results: everything up to it is shared.
    found = talk.turn(prompt)
    assert found.reused >= len(prompt.tokens) - 20
    assert found.reused >= live - 20


def test_an_edit_inside_one_long_message_costs_no_more_than_an_interval(talks: TalkMaker) -> None:
    talk = talks(context=32768)
    long = "word " * 5000
    talk.turn(talk.prompt([Message("user", long + "left")]), b"x")
    prompt = talk.prompt([Message("user", long + "right")])
    found = talk.turn(prompt)
    assert found.source == "memory-checkpoint"
    assert found.evaluated <= 4096 + 20
