"""What an answer comes to does not depend on the dialect in which it was asked for, nor on streaming."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.text.turn import NOTICE
from tests.support.api_server import serve_script
from tests.support.conversations import turn
from tests.support.dialects import DIALECTS, Ask, Question, Said
from tests.support.turns import BASH, BASH_ARGUMENTS, F1, F2, F3, F10, F13, tool

pytestmark = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
_everywhere = pytest.mark.parametrize("ask", DIALECTS.values(), ids=DIALECTS)
_BASH = {"bash": tool("bash", "command")["parameters"]}


def _answer(ask: Ask, streamed: bool, text: str, **question: Any) -> Said:
    """What the client gets when the model says `text`; the next request must work."""
    # A whole answer that could not be read is asked for once more, in other words.
    asked = [turn(text, match="hello"), turn(text), turn("</think>fine", match="and then")]
    with serve_script({"turns": asked}) as server:
        said = ask(server.url, Question(**question), streamed)
        assert ask(server.url, Question("and then"), streamed).text == "fine"
    shown = said.text + said.reasoning + json.dumps(said.calls)
    assert "</think>" not in shown
    assert "end▁of▁sentence" not in shown
    return said


@_everywhere
def test_a_call_with_its_arguments_as_they_were_written(ask: Ask, streamed: bool) -> None:
    tools = {"edit": tool("edit", "path", "lines")["parameters"]}
    said = _answer(ask, streamed, f"Easy.</think>\n\n{F10}", tools=tools)
    assert said.calls == [("edit", {"path": "007", "lines": [1, 2, {"k": None}]})]
    assert (said.text, said.reasoning, said.end) == ("", "Easy.", "calls")


@_everywhere
def test_a_block_that_drifts_into_another_dialect_is_repaired(ask: Ask, streamed: bool) -> None:
    said = _answer(ask, streamed, F1, tools={"exec": tool("exec", "command")["parameters"]})
    assert said.calls == [("exec", {"command": "export A=1; ls"})]
    assert (said.text, said.reasoning, said.end) == ("", "I'll run it.", "calls")


@_everywhere
def test_a_call_that_lost_what_is_required_is_told_and_not_made(ask: Ask, streamed: bool) -> None:
    needs = {"exec": tool("exec", "command", "task", required=["command", "task"])["parameters"]}
    said = _answer(ask, streamed, F1, tools=needs)
    assert said.end == "end"
    # Of a stream the beginning of the call has been seen; SDKs show it, and the end says that it is none.
    assert streamed or not said.calls
    assert said.text.startswith(NOTICE)
    assert "export A=1; ls" in said.text
    assert "DSML" not in said.text


@_everywhere
def test_a_call_before_the_end_of_thinking_leaves_only_prose_in_it(ask: Ask, streamed: bool) -> None:
    said = _answer(ask, streamed, F2, tools=_BASH)
    assert said.calls == [("bash", BASH_ARGUMENTS)]
    assert (said.text, said.reasoning, said.end) == ("", "Need the file first.", "calls")


@_everywhere
def test_a_quoted_call_is_not_made(ask: Ask, streamed: bool) -> None:
    said = _answer(ask, streamed, F3, tools=_BASH)
    assert (said.calls, said.text, said.end) == ([], "The answer is 4.", "end")
    assert said.reasoning == F3.partition("</think>")[0]
    fenced = f"Like so:\n```\n{BASH}\n```\n"
    said = _answer(ask, streamed, f"x</think>{fenced}", tools=_BASH)
    assert (said.calls, said.text, said.end) == ([], fenced, "end")


@_everywhere
def test_an_empty_block_is_no_call_and_no_silence(ask: Ask, streamed: bool) -> None:
    said = _answer(ask, streamed, f"x{F13}", tools=_BASH)
    assert (said.calls, said.text, said.end) == ([], NOTICE, "end")


@_everywhere
def test_thinking_that_never_ends_stays_thinking_and_is_counted(ask: Ask, streamed: bool) -> None:
    said = _answer(ask, streamed, "Good morning.")
    assert (said.text, said.reasoning, said.end) == ("", "Good morning.", "end")
    assert (said.tokens, said.reasoning_tokens) == (13, 13)


@_everywhere
def test_thinking_that_eats_the_budget_says_so(ask: Ask, streamed: bool) -> None:
    said = _answer(ask, streamed, "x" * 50, budget=16)
    assert (said.text, said.reasoning, said.end) == ("", "x" * 16, "budget")
    assert (said.tokens, said.reasoning_tokens) == (16, 16)


@pytest.mark.parametrize("pieces", [["ab", "Xc"], ["a", "bX", "c"]])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_stop_string_is_found_however_it_is_cut(dialect: str, streamed: bool, pieces: list[str]) -> None:
    with serve_script({"turns": [{"pieces": ["</think>", *pieces]}]}) as server:
        said = DIALECTS[dialect](server.url, Question(stop="X"), streamed)
    assert (said.text, said.end) == ("ab", "end")
