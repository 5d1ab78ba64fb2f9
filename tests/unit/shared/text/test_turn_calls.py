"""Calls in every spelling that models produce, and their arguments."""

from __future__ import annotations

import json

import pytest

from shared.text.messages import ToolSet
from shared.text.turn import NOTICE
from tests.support.turns import (
    ANY_TOOLS,
    BASH,
    BASH_ARGUMENTS,
    F1,
    F4A,
    F4B,
    F4C,
    F4D,
    F6,
    F7,
    F9,
    F10,
    M,
    block,
    invoke,
    parameter,
    run,
    tool,
)


def test_plain_spelling_and_nested_parameters() -> None:
    text = (
        '<tool_calls><invoke name="x"><parameter name="p">v</parameter><parameter name="o">'
        '<parameter name="i" string="false">1</parameter></parameter></invoke></tool_calls> tail'
    )
    outcome = run(text)
    assert outcome.turn.calls[0].arguments == '{"p":"v","o":{"i":1}}'
    assert (outcome.turn.content, outcome.turn.repaired, outcome.turn.raw_block) == ("", False, None)
    without_outer_closer = text.replace("</parameter></parameter>", "</parameter>")
    assert run(without_outer_closer).turn.calls[0].arguments == '{"p":"v","o":{"i":1}}'


def test_missing_string_attribute_means_text() -> None:
    text = block(invoke("x", parameter("p", "\n  v ", None), parameter("q", f"<{M}invoke>", None)))
    assert run(text).calls == [("x", {"p": "\n  v ", "q": f"<{M}invoke>"})]


@pytest.mark.parametrize(
    "mark", ["DSML｜", "｜｜DSML｜｜", "|DSML|", "｜DSML", "｜DSML｜ ", "｜ DSML｜", " ｜DSML｜"]
)
def test_short_and_other_spellings(mark: str) -> None:
    text = f'<{mark}calls>\n<{mark}invoke name="x">\n</{mark}invoke>\n</{mark}calls>'
    outcome = run(text)
    assert outcome.turn.calls[0].arguments == "{}"
    assert (outcome.turn.content, outcome.turn.raw_block) == ("", None)


def test_slash_may_follow_the_mark() -> None:
    assert run(BASH.replace(f"</{M}", f"<{M}/")).calls == [("bash", BASH_ARGUMENTS)]


def test_json_is_minified() -> None:
    text = block(invoke("x", parameter("p", '{"a": 1,\n "b": "x y"}', "false")))
    assert run(text).turn.calls[0].arguments == '{"p":{"a":1,"b":"x y"}}'


def test_order_and_repeated_keys_stay() -> None:
    text = block(invoke("x", parameter("b", "1", "false"), parameter("a", "2"), parameter("b", "3", "false")))
    assert run(text).turn.calls[0].arguments == '{"b":1,"a":"2","b":3}'


def test_wrong_closers() -> None:
    outcome = run(F1, thinking=True)
    assert outcome.turn.reasoning == "I'll run it."
    assert outcome.calls == [("exec", {"command": "export A=1; ls"})]
    assert outcome.turn.repaired
    needs_task = ToolSet([tool("exec", "command", "task", required=["command", "task"])])
    lost = run(F1, thinking=True, tools=needs_task)
    assert lost.calls == []
    assert lost.turn.finish_reason == "stop"
    assert NOTICE in lost.turn.content
    assert "export A=1; ls" in lost.turn.content


@pytest.mark.parametrize("text", [F4A, F4B, F4C])
def test_other_wrappers_and_none(text: str) -> None:
    outcome = run(text, thinking=True)
    assert outcome.calls == [("bash", BASH_ARGUMENTS)]
    assert (outcome.turn.content, outcome.turn.raw_block) == ("", None)


def test_invoke_without_closer() -> None:
    assert run(F4D, thinking=True).calls == [("bash", {"command": "a"}), ("bash", {"command": "b"})]


F7_CALL = ("bash", {"command": 'prog --version 2>/dev/null || echo "none > here"'})
F10_CALL = ("edit", {"path": "007", "lines": [1, 2, {"k": None}]})


@pytest.mark.parametrize(("lead", "thinking"), [("", True), ("x</think>", True), ("", False)])
@pytest.mark.parametrize(
    ("text", "call", "tools"),
    [
        (F6, ("read", {"path": "a.txt"}), ANY_TOOLS),
        (F7, F7_CALL, ANY_TOOLS),
        (F7, F7_CALL, ToolSet([tool("bash", "command")])),
        (F9, ("read", {"path": "a.txt"}), ToolSet([tool("read", "path")])),
        (F9, ("read", {"arguments": {"path": "a.txt"}}), ToolSet([tool("read", "arguments")])),
        (F9, ("read", {"arguments": {"path": "a.txt"}}), ANY_TOOLS),
        (F10, F10_CALL, ANY_TOOLS),
    ],
)
def test_fixture_in_every_channel(text: str, call: object, tools: ToolSet, lead: str, thinking: bool) -> None:
    outcome = run(lead + text, thinking=thinking, tools=tools)
    assert outcome.calls == [call]
    assert outcome.turn.content == ""
    assert M not in outcome.turn.reasoning


def test_wrapper_object_as_text_and_with_siblings() -> None:
    tools = ToolSet([tool("read", "path")])
    text = block(invoke("read", parameter("input", '{"path": "a.txt"}')))
    assert run(text, tools=tools).turn.calls[0].arguments == '{"path":"a.txt"}'
    two = block(invoke("read", parameter("input", '{"path": 1}', "false"), parameter("path", "b")))
    assert run(two, tools=tools).calls == [("read", {"input": {"path": 1}, "path": "b"})]
    second = block(invoke("read", parameter("path", "b"), parameter("input", '{"path": 1}', "false")))
    assert run(second, tools=tools).calls == [("read", {"path": "b", "input": {"path": 1}})]
    prose = block(invoke("read", parameter("input", "not an object")))
    assert run(prose, tools=tools).calls == [("read", {"input": "not an object"})]


def test_plain_openers() -> None:
    tools = ToolSet([tool("x")])
    opener = '<invoke name="x"></invoke>'
    assert run(f"a\n  {opener}", tools=tools).calls == [("x", {})]
    for text in (
        f"a {opener}",
        '<invoke name="y"></invoke>',
        "<invoke>",
        "<tool_calls>\ntext",
        "<function>\n<b>",
    ):
        assert run(text, tools=tools).turn.content == text


def test_value_that_ends_with_outer_closers() -> None:
    closers = f"</{M}invoke>\n</{M}tool_calls>"
    text = f'<{M}tool_calls>\n<{M}invoke name="x">\n<{M}parameter name="p" string="true">v\n'
    assert run(text + closers).calls == [("x", {"p": "v\n"})]
    whole = run(text + closers + f"</{M}parameter>\n" + closers)
    assert whole.calls == [("x", {"p": "v\n" + closers})]
    more = f"</{M}invoke>\n" + invoke("y") + f"</{M}tool_calls>"
    assert run(text + more).calls == [("x", {"p": "v\n"}), ("y", {})]


def test_plain_closer_of_a_marked_value() -> None:
    start = f'<{M}tool_calls>\n<{M}invoke name="x">\n<{M}parameter name="p" string="true">v'
    assert run(f"{start}</parameter>\n</{M}invoke>\n</{M}tool_calls>").calls == [("x", {"p": "v"})]
    assert run(f"{start}</parameter>\n</invoke>").calls == [("x", {"p": "v"})]
    assert run(f"{start}</parameter></{M}parameter>").calls == [("x", {"p": "v</parameter>"})]
    assert run(f"{start}</parameter> w</{M}parameter>").calls == [("x", {"p": "v</parameter> w"})]


def test_closing_tag_in_a_json_string_is_text() -> None:
    value = json.dumps({"a": f"</{M}parameter></{M}invoke>"}, ensure_ascii=False)
    assert run(block(invoke("a", parameter("x", value, "false")))).calls == [("a", {"x": json.loads(value)})]


def test_foreign_elements_are_skipped() -> None:
    text = block(invoke("x", "<task>words</task>\n", parameter("p", "v"), "</actions>\n"))
    outcome = run(text)
    assert outcome.calls == [("x", {"p": "v"})]
    assert outcome.turn.repaired
