"""What a turn comes to: channels, calls, finish reasons, and what is shown of a call that was lost."""

from __future__ import annotations

import json

import pytest

from shared.text import marks
from shared.text.events import TextDelta, ThinkingDelta, ToolEnd, ToolLost, ToolStart
from shared.text.messages import ToolSet
from shared.text.turn import NOTICE
from tests.support.turns import (
    ANY_TOOLS,
    BASH,
    BASH_ARGUMENTS,
    CASE_31,
    F1,
    F2,
    F3,
    F4A,
    F4B,
    F4C,
    F4D,
    F6,
    F7,
    F9,
    F10,
    F11,
    F13,
    M,
    block,
    invoke,
    new_turn,
    parameter,
    run,
    tool,
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


def test_required_argument_is_missing_after_a_repair() -> None:
    tools = ToolSet([tool("bash", "command", "why", required=["why"])])
    assert run(BASH, tools=tools).calls == [("bash", BASH_ARGUMENTS)]
    assert run(BASH.replace(f"</{M}invoke>", "</invoke>"), tools=tools).calls == []


def test_block_in_reasoning_field() -> None:
    outcome = run(F2, thinking=True)
    assert outcome.turn.reasoning == "Need the file first."
    assert outcome.calls == [("bash", BASH_ARGUMENTS)]


def test_quoted_block_in_thinking() -> None:
    outcome = run(F3, thinking=True)
    assert outcome.calls == []
    assert outcome.turn.reasoning == F3.partition("</think>")[0]
    assert (outcome.turn.content, outcome.turn.finish_reason) == ("The answer is 4.", "stop")


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


def test_leading_think_end_and_empty_block() -> None:
    outcome = run(F11)
    assert (outcome.calls, outcome.turn.content) == ([("bash", BASH_ARGUMENTS)], "")
    empty = run(F13)
    assert (empty.turn.content, empty.turn.calls, empty.turn.finish_reason) == (NOTICE, [], "stop")


def test_lost_sibling() -> None:
    text = block(invoke("a", parameter("x", "{bad", "false")), invoke("b", parameter("y", "1")))
    outcome = run(text)
    assert outcome.calls == [("b", {"y": "1"})]
    assert outcome.turn.finish_reason == "tool_calls"
    assert outcome.turn.content.startswith(NOTICE)
    assert "{bad" in outcome.turn.content
    assert (outcome.lost, outcome.ended) == ({0}, {1})
    assert outcome.turn.raw_block is None


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


def test_without_tools_nothing_opens() -> None:
    outcome = run(f"a {BASH} b", tools=None)
    assert outcome.calls == []
    assert outcome.turn.finish_reason == "stop"
    assert M not in outcome.turn.content
    assert BASH_ARGUMENTS["command"] in outcome.turn.content
    plain = '<invoke name="x"></invoke>'
    assert run(plain, tools=None).turn.content == plain


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


def test_closing_tag_in_a_json_string_is_text() -> None:
    value = json.dumps({"a": f"</{M}parameter></{M}invoke>"}, ensure_ascii=False)
    assert run(block(invoke("a", parameter("x", value, "false")))).calls == [("a", {"x": json.loads(value)})]


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


def test_foreign_elements_are_skipped() -> None:
    text = block(invoke("x", "<task>words</task>\n", parameter("p", "v"), "</actions>\n"))
    outcome = run(text)
    assert outcome.calls == [("x", {"p": "v"})]
    assert outcome.turn.repaired


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


def test_quoted_block_in_thinking_is_not_held() -> None:
    turn = new_turn(thinking=True)
    turn.feed(FENCED.encode())
    assert not turn.held_call


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


def test_lost_call_is_announced_once() -> None:
    text = block(invoke("x", "bare", "more", parameter("p", "{", "false")))
    outcome = run(text)
    assert [event for event in outcome.events if isinstance(event, ToolLost)] == [ToolLost(0)]
