"""Masks, penalties and log probabilities in the decode loop, with look-ahead and without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.generate import Generation, GenerationSettings
from shared.sampling import GREEDY, RandomStream, Sampling
from shared.scripted.vocabulary import END_OF_TURN, TOKENS
from shared.text.events import TextScores
from shared.text.turn import DecodeState
from shared.token_choice import NO_PENALTIES, KnownToken, Penalties, TokenChooser, TokenMasks, TurnState
from tests.support.plain_turn import PlainTurn
from tests.support.scripted import scripted

PROMPT = [1, 2, 3]
SIZE = len(TOKENS)
EVEN = {"logits": {"a": 2.0, "b": 1.0, "c": 0.0}}


class Only(TokenMasks):
    """Allows one byte after the other; notes what it was told."""

    def __init__(self, text: bytes) -> None:
        self.expected = list(text)
        self.told: list[int] = []

    def allowed(self, turn: TurnState) -> npt.NDArray[np.bool_] | None:
        if len(self.told) >= len(self.expected):
            return None
        mask = np.zeros(SIZE, np.bool_)
        mask[self.expected[len(self.told)]] = True
        return mask

    def take(self, token: int) -> None:
        self.told.append(token)


def run(
    *pieces: Any, turn: PlainTurn | None = None, masks: TokenMasks | None = None, **chosen: Any
) -> tuple[Generation, list[list[Any]], Any]:
    engine = scripted(list(pieces))
    session = engine.open_session(4096)
    session.sync(PROMPT)
    reader: Any = turn or PlainTurn()
    settings = GenerationSettings(**{"sampling": GREEDY, "max_tokens": 100} | chosen)
    generation = Generation(session, engine.tokenizer, reader, settings, masks=masks)
    return generation, list(generation), session


@pytest.mark.parametrize("look_ahead", [True, False])
def test_masks_decide_and_are_told_every_token_that_is_kept(look_ahead: bool) -> None:
    masks = Only(b"cab")
    generation, _, session = run(*[EVEN] * 5, masks=masks, look_ahead=look_ahead)
    assert bytes(generation.tokens) == b"cabaa"
    assert masks.told == generation.tokens
    assert session.tokens == PROMPT + generation.tokens


@pytest.mark.parametrize("look_ahead", [True, False])
def test_the_end_token_is_no_part_of_the_answer(look_ahead: bool) -> None:
    masks = Only(b"c")
    masks.expected.append(END_OF_TURN)
    generation, _, session = run(EVEN, masks=masks, look_ahead=look_ahead)
    assert generation.cause == "eos"
    assert masks.told == [ord("c")]
    assert session.tokens == [*PROMPT, ord("c")]


@settings(max_examples=60)
@given(
    st.floats(-2, 2),
    st.floats(-2, 2),
    st.sampled_from([GREEDY, Sampling(), Sampling(top_k=2)]),
    st.integers(0, 9),
)
@example(1.0, 1.7565534212524607, GREEDY, 0)  # the sum rounds in single precision
def test_penalties_are_those_of_a_plain_count(
    frequency: float, presence: float, sampling: Sampling, seed: int
) -> None:
    ends = [
        run(
            *[EVEN] * 30,
            penalties=Penalties(frequency, presence),
            sampling=sampling,
            seed=seed + 1,
            look_ahead=look_ahead,
        )
        for look_ahead in (True, False)
    ]
    assert ends[0][0].tokens == ends[1][0].tokens
    assert ends[0][2].tokens == ends[1][2].tokens == PROMPT + ends[0][0].tokens
    if sampling.greedy:
        counts = dict.fromkeys("abc", 0)
        for token in ends[0][0].tokens:
            logits = {
                letter: np.float32(EVEN["logits"][letter])
                - (np.float32(frequency) * np.float32(count) + np.float32(presence) * np.float32(count > 0))
                for letter, count in counts.items()
            }
            assert logits[chr(token)] == max(logits.values())
            counts[chr(token)] += 1


def test_penalties_spare_the_syntax_of_calls() -> None:
    turn = PlainTurn(state=lambda data: DecodeState.STRUCTURAL if len(data) < 5 else DecodeState.OUTSIDE)
    generation, _, _ = run(*[EVEN] * 8, turn=turn, penalties=Penalties(frequency=2))
    assert bytes(generation.tokens) == b"aaaaabcb"


def test_a_mask_and_penalties_hold_together() -> None:
    masks = Only(b"aaab")
    generation, _, _ = run(*[EVEN] * 6, masks=masks, penalties=Penalties(frequency=2))
    assert bytes(generation.tokens) == b"aaabcb"


def test_steps_of_several_tokens_come_one_by_one_where_each_counts() -> None:
    step = {"tokens": ["x", "y", "z"]}
    for chosen in ({"penalties": Penalties(1)}, {"top_logprobs": 1}):
        generation, _, session = run(step, step, **chosen)
        assert bytes(generation.tokens) == b"xyzxyz"
        assert session.tokens == PROMPT + generation.tokens
        assert len(generation.tokens) == 6


def test_a_cut_answer_leaves_what_was_kept() -> None:
    for chosen in ({"penalties": Penalties(1)}, {"top_logprobs": 1}, {}):
        for ends in ({"max_tokens": 3}, {"stop": ("c",)}):
            generation, _, session = run(*[EVEN] * 9, **chosen, **ends)
            assert session.tokens == PROMPT + generation.tokens


@pytest.mark.parametrize("look_ahead", [True, False])
@pytest.mark.parametrize("penalties", [NO_PENALTIES, Penalties(presence=1.5)])
def test_scores_are_of_the_models_own_distribution(look_ahead: bool, penalties: Penalties) -> None:
    _, items, _ = run(
        EVEN, EVEN, top_logprobs=2, look_ahead=look_ahead, penalties=penalties, sampling=Sampling(0.01)
    )
    scores = [event for item in items for event in item if isinstance(event, TextScores)]
    assert [score.thinking for score in scores] == [False, False]
    total = math.log(sum(map(math.exp, (2, 1, 0))))
    second = 1 if penalties else 2
    for part, logit in zip(scores, (2, second), strict=True):
        (token,) = part.tokens
        assert token.data == (b"a" if logit == 2 else b"b")
        assert token.logprob == pytest.approx(logit - total, abs=1e-5)
        assert [data for data, _ in token.top] == [b"a", b"b"]
        assert [value for _, value in token.top] == pytest.approx([2 - total, 1 - total], abs=1e-5)


def test_without_being_asked_the_logits_are_not_read() -> None:
    engine = scripted([EVEN])
    session = engine.open_session(100)
    session.sync(PROMPT)
    session.logits = None  # type: ignore[method-assign, assignment]
    chooser = TokenChooser(
        session, SIZE, RandomStream(1), penalties=NO_PENALTIES, masks=None, top_logprobs=None
    )
    picked = chooser.choose(GREEDY, PlainTurn(), penalised=True)
    assert not isinstance(picked, KnownToken)
    assert picked.value() == ord("a")


def test_scores_wait_for_the_text_that_they_are_of() -> None:
    def scored(*pieces: Any) -> list[bytes]:
        _, items, _ = run(*pieces, top_logprobs=0, stop=("END",))
        return [
            token.data
            for item in items
            for event in item
            if isinstance(event, TextScores)
            for token in event.tokens
        ]

    assert scored("x", "END", "y") == [b"x"]
    assert scored("x", "E", "y") == [b"x", b"E", b"y"]
    assert scored("x", "E") == [b"x", b"E"]
    assert scored("E", {"logits": {"x": 1}}, "END") == [b"E", b"x"]
