"""Calls that were lost: never run, never hiding a sibling, always announced."""

from __future__ import annotations

import pytest

from shared.text.events import ToolLost
from shared.text.messages import ToolSet
from shared.text.turn import NOTICE
from tests.support.turns import (
    BASH,
    BASH_ARGUMENTS,
    M,
    block,
    invoke,
    parameter,
    run,
    tool,
)


def test_value_cut_by_the_end() -> None:
    text = f'<{M}tool_calls>\n<{M}invoke name="x">\n<{M}parameter name="p" string="true">val'
    assert run(text).calls == [("x", {"p": "val"})]
    cut = run(text, cause="length")
    assert cut.calls == []
    assert cut.turn.finish_reason == "length"
    assert cut.turn.content.startswith(NOTICE)
    assert "val" in cut.turn.content
    assert cut.arguments == {0: '{"p":"val'}


@pytest.mark.parametrize("tail", [f"</{M}param", f"</{M}parameter", f"</{M}parameter>\n</{M}inv", f"</{M}"])
def test_unfinished_tag_at_the_end_token_counts_as_finished(tail: str) -> None:
    text = f'<{M}tool_calls>\n<{M}invoke name="x">\n<{M}parameter name="p" string="true">val'
    assert run(text + tail).calls == [("x", {"p": "val"})]
    assert run(text + tail, cause="stop").calls == []


def test_doubled_closer_and_cut_value() -> None:
    end = f"</{M}parameter>"
    assert run(block(invoke("x", parameter("p", "v" + end)))).calls == [("x", {"p": "v"})]
    lost = run("Hi\n" + block(invoke("x", parameter("p", f"v{end}w"))))
    assert lost.calls == []
    assert lost.turn.finish_reason == "stop"
    assert lost.turn.content.startswith(f"Hi\n\n{NOTICE}\n")
    assert lost.turn.notice == lost.turn.content.removeprefix("Hi")
    assert "v" in lost.turn.notice
    assert "w" in lost.turn.notice
    assert M not in lost.turn.notice


def test_required_argument_is_missing_after_a_repair() -> None:
    tools = ToolSet([tool("bash", "command", "why", required=["why"])])
    assert run(BASH, tools=tools).calls == [("bash", BASH_ARGUMENTS)]
    assert run(BASH.replace(f"</{M}invoke>", "</invoke>"), tools=tools).calls == []


def test_lost_sibling() -> None:
    text = block(invoke("a", parameter("x", "{bad", "false")), invoke("b", parameter("y", "1")))
    outcome = run(text)
    assert outcome.calls == [("b", {"y": "1"})]
    assert outcome.turn.finish_reason == "tool_calls"
    assert outcome.turn.content.startswith(NOTICE)
    assert "{bad" in outcome.turn.content
    assert (outcome.lost, outcome.ended) == ({0}, {1})
    assert outcome.turn.raw_block is None


@pytest.mark.parametrize(
    "value",
    ["NaN", "[1,]", "01", "", "[1", '{"a" 1}', '"\\x"', "1 2", '"a\nb"', "tru", "[" * 300 + "]" * 300],
)
def test_invalid_json_loses_the_call(value: str) -> None:
    outcome = run(block(invoke("a", parameter("x", value, "false")), invoke("b")))
    assert outcome.calls == [("b", {})]
    assert NOTICE in outcome.turn.content


def test_string_broken_over_lines_does_not_swallow_the_next_call() -> None:
    text = block(invoke("a", parameter("x", '{"a": "bad}', "false")), invoke("b", parameter("y", "1")))
    assert run(text).calls == [("b", {"y": "1"})]


def test_only_the_broken_string_gives_up_its_tags() -> None:
    value = f'["</{M}parameter>x", "b\nc"]'
    outcome = run(block(invoke("a", parameter("x", value, "false")), invoke("b")))
    assert outcome.calls == [("b", {})]
    assert outcome.turn.content == f'{NOTICE}\na\nx: ["x", "b\nc"]'


@pytest.mark.parametrize(
    "inside",
    [
        "stray words",
        f'<{M}parameter string="true">v</{M}parameter>',
        '<arg name="p">v</arg>',
        "<p>v</p>",
        f'<{M}parameter name="p" string="true">v</{M}parameter> tail',
    ],
)
def test_lost_calls(inside: str) -> None:
    tools = ToolSet([tool("x", "p")])
    outcome = run(block(invoke("x", inside), invoke("y")), tools=tools)
    assert outcome.calls == [("y", {})]
    assert (outcome.lost, outcome.ended) == ({0}, {1})


def test_call_without_name_never_starts() -> None:
    text = block(f"<{M}invoke>\n{parameter('p', 'v')}</{M}invoke>\n", invoke("y"))
    outcome = run(text)
    assert outcome.calls == [("y", {})]
    assert outcome.arguments == {0: "{}"}
    assert "v" in outcome.turn.content


def test_budget_between_and_within_calls() -> None:
    first = BASH.removesuffix(f"</{M}tool_calls>")
    assert run(first, cause="length").turn.finish_reason == "tool_calls"
    for tail in (
        f'<{M}invoke name="b',
        f'<{M}invoke name="b">\n',
        f'<{M}invoke name="b">\n{parameter("q", "r")}',
    ):
        outcome = run(first + tail, cause="length")
        assert outcome.calls == [("bash", BASH_ARGUMENTS)]
        assert outcome.turn.finish_reason == "length"
        assert NOTICE in outcome.turn.content
    assert run(f"<{M}tool_calls>\n", cause="length").turn.finish_reason == "length"
    assert run(BASH, cause="length").turn.finish_reason == "tool_calls"


def test_lost_call_is_announced_once() -> None:
    text = block(invoke("x", "bare", "more", parameter("p", "{", "false")))
    outcome = run(text)
    assert [event for event in outcome.events if isinstance(event, ToolLost)] == [ToolLost(0)]


def test_a_parameter_that_lost_its_invoke_is_shown() -> None:
    text = invoke("a") + parameter("x", "v") + f"</{M}invoke>"
    for whole in (text, f"<{M}tool_calls>\n{text}\n</{M}tool_calls>"):
        outcome = run(whole)
        assert outcome.calls == [("a", {})]
        assert outcome.turn.content == f"{NOTICE}\nx: v"


def test_a_value_that_lost_all_its_openers_is_shown() -> None:
    outcome = run(block(invoke("a"), f"value</{M}parameter>\n</{M}invoke>\n"))
    assert outcome.calls == [("a", {})]
    assert outcome.turn.content == f"{NOTICE}\nvalue"


def test_an_argument_that_a_value_swallowed_is_missing() -> None:
    swallowed = parameter("why", "w").removesuffix(f"</{M}parameter>\n") + "\n" + parameter("command", "ls")
    tools = ToolSet([tool("bash", "why", "command", required=["command"])])
    outcome = run(block(invoke("bash", swallowed)), tools=tools)
    assert outcome.calls == []
    assert "ls" in outcome.turn.content
    quoting = parameter("why", f'<{M}parameter name="x">') + parameter("command", "ls")
    assert run(block(invoke("bash", quoting)), tools=tools).calls == [
        ("bash", {"why": f'<{M}parameter name="x">', "command": "ls"})
    ]
