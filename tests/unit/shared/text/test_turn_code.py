"""Markup in code is text; markup outside it never shows."""

from __future__ import annotations

import pytest

from shared.text import marks
from shared.text.messages import ToolSet
from shared.text.turn import NOTICE
from tests.support.turns import (
    ANY_TOOLS,
    BASH,
    BASH_ARGUMENTS,
    F3,
    M,
    new_turn,
    run,
)


def test_quoted_block_in_thinking() -> None:
    outcome = run(F3, thinking=True)
    assert outcome.calls == []
    assert outcome.turn.reasoning == F3.partition("</think>")[0]
    assert (outcome.turn.content, outcome.turn.finish_reason) == ("The answer is 4.", "stop")


FENCED = f"```\n{BASH}\n```\n"


def test_fenced_block_is_text() -> None:
    outcome = run(FENCED)
    assert (outcome.turn.content, outcome.calls) == (FENCED, [])


def test_unclosed_fence() -> None:
    text = f"see\n```\n{BASH}"
    outcome = run(text)
    assert outcome.calls == [("bash", BASH_ARGUMENTS)]
    assert outcome.turn.content == "see\n```"
    for other, cause in ((text.replace("tool_calls", "function_calls"), "eos"), (text, "length")):
        shown = run(other, cause=cause)
        assert (shown.turn.content, shown.calls) == (other, [])
    in_line = f"```\nx {BASH}"
    assert run(in_line).turn.content == in_line


def test_unclosed_fence_in_thinking() -> None:
    text = f"see\n```\n{BASH}"
    outcome = run(text, thinking=True)
    assert outcome.calls == [("bash", BASH_ARGUMENTS)]
    assert outcome.turn.reasoning == "see\n```"
    closed = run(text + "</think>ok", thinking=True)
    assert (closed.turn.reasoning, closed.turn.content, closed.calls) == (text, "ok", [])


def test_fence_does_not_close_in_another_channel() -> None:
    text = f"```\na</think>b\n```\n{BASH}\n```"
    outcome = run(text, thinking=True)
    assert (outcome.turn.reasoning, outcome.calls) == ("```\na", [])
    assert outcome.turn.content == text.partition("</think>")[2]


def test_longer_and_tilde_fences() -> None:
    for text in (f"````\n```\n{BASH}\n````", f"~~~\n```\n{BASH}\n~~~~", f"~~~ `x`\n{BASH}\n~~~"):
        outcome = run(text)
        assert (outcome.turn.content, outcome.calls) == (text, [])
    for text in (f"````\nx\n```\n{BASH}", f"~~~\nx\n```\n{BASH}"):
        assert run(text).calls == [("bash", BASH_ARGUMENTS)]


BLOCK_IN_LINE = BASH.replace("\n", "")


def test_inline_code() -> None:
    text = f"x `{BLOCK_IN_LINE}` y"
    outcome = run(text)
    assert (outcome.turn.content, outcome.calls) == (text, [])
    outcome = run(f"the ` key\n{BASH}")
    assert (outcome.turn.content, outcome.calls) == ("the ` key", [("bash", BASH_ARGUMENTS)])
    outcome = run(f"the ` key {BLOCK_IN_LINE}\n")
    assert (outcome.turn.content, outcome.calls) == ("the ` key", [("bash", BASH_ARGUMENTS)])


def test_inline_code_within_a_run_that_never_closes() -> None:
    text = f'`` a ` x <{M}invoke name="q"> ` b <think>c\n'
    outcome = run(text)
    assert outcome.turn.content == text.replace("<think>", "")
    assert outcome.calls == []


def test_inline_code_of_three_at_a_line_start() -> None:
    text = f'```<{M}invoke name="q">``` is a tag\n'
    assert run(text).turn.content == text


@pytest.mark.parametrize("tools", [None, ANY_TOOLS])
def test_stray_markup(tools: ToolSet | None) -> None:
    text = f"<｜User｜>a</{M}tool_calls>b<think>"
    assert run(text, tools=tools).turn.content == "ab"
    assert run(f"`{text}`", tools=tools).turn.content == f"`{text}`"
    every = "".join(f"{mark}-" for mark in marks.ALL)
    assert run(every, tools=tools).turn.content == "-" * len(marks.ALL)


def test_removing_markup_forms_none() -> None:
    for text in (
        "<thi<think>nk>",
        "<thi<thi<think>nk>nk>x",
        "<｜Us</think>er｜>",
        f"<｜DS<think>ML｜invoke>{M}",
    ):
        content = run(text).turn.content
        assert all(mark not in content for mark in marks.ALL)
        assert NOTICE not in content
    turn = run("a</thi<think>nk>b</think>c", thinking=True).turn
    assert (turn.reasoning, turn.content) == ("ab", "c")


def test_quoted_block_in_thinking_is_not_held() -> None:
    turn = new_turn(thinking=True)
    turn.feed(FENCED.encode())
    assert not turn.held_call
