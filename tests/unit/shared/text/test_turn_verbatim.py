"""An answer that is JSON is passed on byte for byte; with tools active a block may stand instead."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text.messages import ToolSet
from shared.text.turn import Turn
from tests.support.turns import ANY_TOOLS, BASH, BASH_ARGUMENTS, M

TEXTS = st.lists(
    st.sampled_from(
        ["<think>", "</think>", f"<{M}tool_calls>", f"</{M}invoke>", "`", "```\n", "<｜User｜>", "é", " \n"]
    ),
    max_size=8,
).map("".join)
TOOLS = st.sampled_from([None, ANY_TOOLS])


def read(data: bytes, turn: Turn, step: int) -> Turn:
    for start in range(0, len(data), step):
        turn.feed(data[start : start + step])
    turn.finish("eos")
    return turn


@given(TEXTS, TOOLS, st.booleans(), st.integers(1, 40))
def test_markup_and_code_in_strings_stay(text: str, tools: ToolSet | None, thinking: bool, step: int) -> None:
    answer = json.dumps({text: [text]}, ensure_ascii=False)
    data = (("so</think>" if thinking else "") + answer).encode()
    turn = read(data, Turn(thinking=thinking, tools=tools, verbatim=True), step)
    assert turn.content == answer
    assert turn.reasoning == ("so" if thinking else "")
    assert not turn.calls
    assert turn.finish_reason == "stop"


@given(TOOLS, st.sampled_from([1, 2, 3, 7, 50, 300]), st.sampled_from(["", "\n\n", " "]))
def test_a_block_is_a_call_where_tools_are_active(tools: ToolSet | None, step: int, lead: str) -> None:
    turn = read((lead + BASH).encode(), Turn(thinking=False, tools=tools, verbatim=True), step)
    if tools is None:
        assert turn.content == lead + BASH
        return
    assert [json.loads(call.arguments) for call in turn.calls] == [BASH_ARGUMENTS]
    assert turn.content == ""
    assert turn.raw_block == (lead + BASH).encode()


@pytest.mark.parametrize("text", ["", " ", "\n \n", ' {"a'])
@pytest.mark.parametrize("tools", [None, ANY_TOOLS])
def test_an_answer_cut_short_shows_what_there_is(text: str, tools: ToolSet | None) -> None:
    turn = Turn(thinking=False, tools=tools, verbatim=True)
    for byte in text.encode():
        turn.feed(bytes([byte]))
    turn.finish("length")
    assert turn.content == text
    assert turn.finish_reason == "length"


def test_the_text_streams() -> None:
    turn = Turn(thinking=False, tools=None, verbatim=True)
    sent = ["".join(event.text for event in turn.feed(piece)) for piece in (b'{"`a', b"<", b'":1', b"}")]  # type: ignore[union-attr]
    assert sent == ['{"`a', "<", '":1', "}"]
