"""Where control tokens stand, against a plain loop over the tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kv.live.control_tokens import ControlMap, ControlTokens
from shared.kv.live.prompt import Prompt
from shared.scripted.vocabulary import CONTROL, tokenizer
from shared.text import marks
from shared.text.segments import Segment, SegmentKind

CONTROLS = ControlTokens(tokenizer())
USER, EOS = CONTROL[marks.USER], CONTROL[marks.EOS]
REAL = [CONTROL[mark] for mark in (*marks.REQUIRED, marks.REMINDER)]
# Task marks are control strings of the vocabulary that the format has no use for.
TOKENS = st.lists(st.sampled_from([*REAL, *b"ab", CONTROL[marks.PAD]]), max_size=30)


def pairs(found: ControlMap) -> list[tuple[int, int]]:
    return list(zip(found.offsets.tolist(), found.ids.tolist(), strict=True))


def by_loop(tokens: list[int]) -> list[tuple[int, int]]:
    found, offset = [], 0
    for token in tokens:
        if token in REAL:
            found.append((offset, token))
        offset += len(tokenizer().token_bytes(token))
    return found


@given(TOKENS)
def test_offsets_positions_and_lengths(tokens: list[int]) -> None:
    assert pairs(CONTROLS.of(tokens)) == by_loop(tokens)
    assert CONTROLS.positions(tokens).tolist() == [i for i, token in enumerate(tokens) if token in REAL]
    assert CONTROLS.byte_length(tokens) == len(tokenizer().decode(tokens))
    assert CONTROLS.decode(tokens) == tokenizer().decode(tokens)


@given(TOKENS, st.integers(0, 200))
def test_tokens_before_an_offset_lie_wholly_before_it(tokens: list[int], offset: int) -> None:
    count = CONTROLS.tokens_before(tokens, offset)
    assert CONTROLS.byte_length(tokens[:count]) <= offset
    assert count == len(tokens) or CONTROLS.byte_length(tokens[: count + 1]) > offset


@given(TOKENS, TOKENS)
def test_maps_of_two_texts_join(left: list[int], right: list[int]) -> None:
    joined = CONTROLS.of(left).followed_by(CONTROLS.of(right), CONTROLS.byte_length(left))
    assert joined.same_as(CONTROLS.of(left + right))
    assert joined.before(CONTROLS.byte_length(left)).same_as(CONTROLS.of(left))


@given(TOKENS, TOKENS, st.integers(0, 300), st.data())
def test_disagreement_is_the_first_place_that_differs(
    live: list[int], prompt: list[int], end: int, data: st.DataObject
) -> None:
    ours, theirs = CONTROLS.of(live), CONTROLS.of(prompt)
    free = data.draw(st.lists(st.booleans(), min_size=len(ours.ids), max_size=len(ours.ids)))
    needed = {pair for pair, may_be_extra in zip(pairs(ours), free, strict=True) if not may_be_extra}
    wrong = (set(pairs(theirs)) - set(pairs(ours))) | (needed - set(pairs(theirs)))
    expected = min([end, *(offset for offset, _ in wrong)])
    assert ours.disagreement(theirs, np.array(free, bool), end) == expected


def test_one_kind_at_one_place() -> None:
    found = CONTROLS.of([*b"ab", USER, EOS])
    assert found.has(2, USER)
    assert not found.has(2, EOS)
    assert not found.has(3, USER)
    assert not ControlMap.empty().has(0, USER)
    assert found.only(EOS, USER) == [USER, EOS]
    assert found.only(CONTROL[marks.THINK]) == []


def test_equal_endings_are_told_from_longer_ones() -> None:
    def ending(*tokens: int) -> ControlMap:
        return CONTROLS.of(tokens).since(USER, CONTROLS.byte_length(tokens))

    assert ending(*b"aaaa", USER, *b"b").same_as(ending(USER, *b"b"))
    assert not ending(USER, *b"bb").same_as(ending(USER, *b"b"))
    assert not ending(USER, EOS).same_as(ending(USER, *marks.EOS.encode()))
    assert ending(*b"ab").same_as(ending(*b"ab"))
    assert not ending(*b"ab").same_as(ending(*b"abc"))


@pytest.mark.parametrize(("tokens", "real"), [([USER, 97], True), ([*marks.USER.encode(), 97], False)])
def test_control_strings_must_be_control_tokens(tokens: list[int], real: bool) -> None:
    assert CONTROLS.all_real(tokenizer().decode(tokens), CONTROLS.of(tokens)) is real


def test_a_prompt_is_looked_through_once() -> None:
    prompt = Prompt([Segment(b"a", SegmentKind.TEXT)], [97, USER])
    assert CONTROLS.of_prompt(prompt) is CONTROLS.of_prompt(prompt)
    other = Prompt(prompt.segments, [USER])
    assert pairs(CONTROLS.of_prompt(other)) == [(0, USER)]
