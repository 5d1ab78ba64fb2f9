"""Channels of a turn: thinking, text, and where a block of calls begins and ends."""

from __future__ import annotations

import pytest

from shared.text.events import TextDelta, ThinkingDelta, ToolEnd, ToolStart
from shared.text.turn import NOTICE
from tests.support.turns import (
    ANY_TOOLS,
    BASH,
    BASH_ARGUMENTS,
    CASE_31,
    F2,
    F7,
    F11,
    F13,
    M,
    block,
    invoke,
    new_turn,
    parameter,
    run,
)


def test_thinking_text_and_call() -> None:
    outcome = run(CASE_31, thinking=True)
    turn = outcome.turn
    assert (turn.reasoning, turn.content, turn.finish_reason) == ("think hard", "Sure.", "tool_calls")
    assert turn.calls[0].arguments == (
        '{"command":"echo &amp;&amp; </｜DSML｜parameter> a && b","timeout":10}'
    )
    assert turn.raw_block == CASE_31.partition("Sure.")[2].encode()
    assert turn.raw_block.startswith(b"\n\n")
    assert not turn.repaired


def test_entities_are_decoded_only_on_request() -> None:
    outcome = run(CASE_31, thinking=True, unescape="entities")
    assert outcome.calls[0][1]["command"] == "echo && </｜DSML｜parameter> a && b"


def test_block_in_unclosed_thinking_is_a_call() -> None:
    outcome = run("plan\n\n" + BASH, thinking=True)
    assert (outcome.turn.reasoning, outcome.turn.content) == ("plan", "")
    assert outcome.calls == [("bash", BASH_ARGUMENTS)]
    assert outcome.turn.finish_reason == "tool_calls"
    assert outcome.turn.thinking_closed


def test_block_in_thinking_that_closes_is_reasoning_without_tags() -> None:
    turn = run("plan\n\n" + BASH + " no</think>ok", thinking=True).turn
    assert turn.calls == []
    assert (turn.content, turn.finish_reason) == ("ok", "stop")
    assert turn.reasoning.startswith("plan\n\n")
    assert turn.reasoning.endswith(" no")
    assert BASH_ARGUMENTS["command"] in turn.reasoning
    assert M not in turn.reasoning


def test_incomplete_block_in_thinking_is_reasoning() -> None:
    for text in (BASH[:-50], BASH.removesuffix("</｜DSML｜invoke>\n</｜DSML｜tool_calls>")):
        turn = run("plan\n\n" + text, thinking=True).turn
        assert turn.calls == []
        assert (turn.content, turn.finish_reason) == ("", "stop")
        assert BASH_ARGUMENTS["command"] in turn.reasoning
        assert M not in turn.reasoning


def test_lost_block_in_thinking_does_not_hide_a_later_one() -> None:
    bad = block(invoke("a", parameter("x", "{bad", "false")))
    outcome = run(f"one {bad} two\n{BASH} three", thinking=True)
    assert outcome.calls == [("bash", BASH_ARGUMENTS)]
    assert "{bad" in outcome.turn.reasoning
    assert outcome.turn.reasoning.endswith(" two")


def test_two_tentative_blocks() -> None:
    turn = run(f"a {BASH} b {BASH} `{M}` c</think>d", thinking=True).turn
    assert turn.calls == []
    assert turn.content == "d"
    assert turn.reasoning.endswith(f" `{M}` c")
    assert turn.reasoning.count(M) == 1


def test_thinking_ends_at_the_first_mark_even_in_a_value() -> None:
    text = "a\n" + BASH.replace("sed", "x</think>y")
    turn = run(text, thinking=True).turn
    assert turn.reasoning == "a\n\n\nx"
    assert turn.content.startswith("y -n")
    assert turn.calls == []


@pytest.mark.parametrize(
    ("thinking", "reasoning", "content"), [(True, "hello", "xworld"), (False, "", "helloxworld")]
)
def test_further_think_marks_are_removed(thinking: bool, reasoning: str, content: str) -> None:
    turn = run("hello</think>x</think>world", thinking=thinking).turn
    assert (turn.reasoning, turn.content) == (reasoning, content)


def test_leading_think_is_skipped() -> None:
    assert run("<think>a</think>b", thinking=True).turn.reasoning == "a"


def test_unclosed_thinking_stays_reasoning() -> None:
    for cause, reason in (("eos", "stop"), ("length", "length"), ("stop", "stop")):
        turn = run("Good morning.\n", thinking=True, cause=cause).turn
        assert (turn.reasoning, turn.content, turn.finish_reason) == ("Good morning.\n", "", reason)
        assert not turn.thinking_closed


def test_block_in_reasoning_field() -> None:
    outcome = run(F2, thinking=True)
    assert outcome.turn.reasoning == "Need the file first."
    assert outcome.calls == [("bash", BASH_ARGUMENTS)]


def test_leading_think_end_and_empty_block() -> None:
    outcome = run(F11)
    assert (outcome.calls, outcome.turn.content) == ([("bash", BASH_ARGUMENTS)], "")
    empty = run(F13)
    assert (empty.turn.content, empty.turn.calls, empty.turn.finish_reason) == (NOTICE, [], "stop")


def test_without_tools_nothing_opens() -> None:
    outcome = run(f"a {BASH} b", tools=None)
    assert outcome.calls == []
    assert outcome.turn.finish_reason == "stop"
    assert M not in outcome.turn.content
    assert BASH_ARGUMENTS["command"] in outcome.turn.content
    plain = '<invoke name="x"></invoke>'
    assert run(plain, tools=None).turn.content == plain


def test_generation_stops_at_the_end_of_a_block() -> None:
    turn = new_turn()
    turn.feed(BASH[:-1].encode())
    assert not turn.should_stop
    turn.feed(b"> and more")
    assert turn.should_stop
    assert turn.finish("tool") == []
    assert (turn.content, turn.finish_reason) == ("", "tool_calls")
    assert turn.raw_block == BASH.encode()


def test_block_without_wrapper_ends_before_other_text() -> None:
    turn = new_turn()
    turn.feed((invoke("a") + invoke("b")).encode())
    assert not turn.should_stop
    turn.feed(b"x")
    assert turn.should_stop
    assert [call.name for call in turn.calls] == ["a", "b"]


def test_held_call() -> None:
    turn = new_turn(thinking=True)
    events = turn.feed(b"plan\n\n" + BASH.encode())
    assert events == [ThinkingDelta("plan")]
    assert turn.held_call
    assert not turn.should_stop
    assert turn.calls == []
    assert turn.feed(b" or not") == []
    assert turn.held_call
    events = turn.finish("tool")
    assert isinstance(events[0], ToolStart)
    assert events[-1] == ToolEnd(0)
    assert (turn.reasoning, turn.finish_reason) == ("plan", "tool_calls")
    assert turn.raw_block == b"\n\n" + BASH.encode()


def test_held_call_is_taken_back() -> None:
    turn = new_turn(thinking=True)
    turn.feed(b"plan\n\n" + BASH.encode())
    turn.feed(b" no</think>")
    assert not turn.held_call
    assert turn.thinking_closed


def test_block_that_is_not_canonical_is_not_kept() -> None:
    for text in (
        BASH.replace("tool_calls", "function_calls"),
        BASH.replace(f"</{M}tool_calls>", "</tool_calls>"),
        BASH.replace(' string="true"', ""),
        BASH.replace(f"<{M}invoke ", f"<{M}invoke  "),
        invoke("bash"),
        F7,
    ):
        outcome = run(text)
        assert outcome.calls
        assert outcome.turn.raw_block is None


def test_ids_are_unique() -> None:
    from shared.text.turn import Turn

    ids = iter(["a", "a", "b"])
    turn = Turn(thinking=False, tools=ANY_TOOLS, new_id=lambda: next(ids))
    turn.feed(block(invoke("x"), invoke("y")).encode())
    assert [call.id for call in turn.calls] == ["a", "b"]
    default = Turn(thinking=False, tools=ANY_TOOLS)
    default.feed(BASH.encode())
    prefix, _, digits = default.calls[0].id.partition("_")
    assert prefix == "call"
    assert len(bytes.fromhex(digits)) == 16


def test_text_bytes() -> None:
    turn = new_turn(tools=None)
    assert turn.feed(b"\xf0\x9f") == []
    assert turn.feed(b"\x9a\xa9") == [TextDelta("🚩")]
    assert turn.feed(b"\xff\xe4\xb8") == [TextDelta("\ufffd")]
    assert turn.finish("eos") == [TextDelta("\ufffd")]
