"""What models write and what a chat client gets of it: streamed and whole give the same answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from shared.text.turn import NOTICE
from tests.support.api_server import RunningServer, serve_script
from tests.support.turns import (
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
    parameter,
    tool,
)

_BASH_CALL = ("bash", BASH_ARGUMENTS)
_EXEC = tool("exec", "command")
_BASH = tool("bash", "command", "timeout")
_READ = tool("read", "path")
_A_AND_B = block(invoke("a", parameter("x", "{bad", "false")), invoke("b", parameter("y", "é")))


@dataclass(frozen=True)
class _Case:
    """A turn as sampled, and the answer. `calls` None: no `tool_calls` at all; `budget` ends it early."""

    text: str
    content: str | re.Pattern[str] = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] | None = None
    finish: str = "stop"
    tools: tuple[Any, ...] = (_BASH,)
    thinking: bool = True
    budget: int | None = None


_LOST = re.compile(re.escape(NOTICE) + "(?s:.*)")
_CASES: dict[str, _Case] = {
    "a second think end is stray": _Case("hello</think>x</think>world", "xworld", "hello"),
    "a think end without thinking is stray": _Case(
        "hello</think>x</think>world", "helloxworld", thinking=False
    ),
    "thinking that never closes": _Case("Good morning.", "", "Good morning."),
    "thinking cut by the budget": _Case("abc def", "", "abc d", finish="length", budget=5),
    "ordinary text with tools": _Case(
        "Hi \n\n there <b>x</b> 1 < 2", "Hi \n\n there <b>x</b> 1 < 2", thinking=False
    ),
    "reasoning, text and a call": _Case(
        CASE_31,
        "Sure.",
        "think hard",
        [("bash", {"command": f"echo &amp;&amp; </{M}parameter> a && b", "timeout": 10})],
        "tool_calls",
    ),
    "a spaced json value": _Case(
        block(invoke("bash", parameter("timeout", '{"a": 1,\n "b": "x y"}', "false"))),
        calls=[("bash", {"timeout": {"a": 1, "b": "x y"}})],
        finish="tool_calls",
        thinking=False,
    ),
    "another dialect's closers": _Case(
        F1, "", "I'll run it.", [("exec", {"command": "export A=1; ls"})], "tool_calls", (_EXEC,)
    ),
    "another dialect's closers, something required is lost": _Case(
        F1, _LOST, "I'll run it.", tools=(tool("exec", "command", "task", required=["command", "task"]),)
    ),
    "a call in open thinking": _Case(F2, "", "Need the file first.", [_BASH_CALL], "tool_calls"),
    "a call that thinking takes back": _Case(f"plan\n\n{BASH} no</think>ok", "ok", re.sub(
        r"</?｜DSML｜[^>]*>", "", f"plan\n\n{BASH} no")),
    "a call quoted in thinking": _Case(F3, "The answer is 4.", F3.partition("</think>")[0]),
    "the older wrapper": _Case(F4A, "", "Need the file first.", [_BASH_CALL], "tool_calls"),
    "no wrapper": _Case(F4B, "", "Need the file first.", [_BASH_CALL], "tool_calls"),
    "no closing wrapper": _Case(F4C, "", "Need the file first.", [_BASH_CALL], "tool_calls"),
    "no closing invoke": _Case(
        F4D,
        "",
        "Need the file first.",
        [("bash", {"command": "a"}), ("bash", {"command": "b"})],
        "tool_calls",
    ),
    "a misspelt wrapper": _Case(
        F6, calls=[("read", {"path": "a.txt"})], finish="tool_calls", tools=(_READ,), thinking=False
    ),
    "closers that do not match": _Case(
        F7,
        calls=[("bash", {"command": 'prog --version 2>/dev/null || echo "none > here"'})],
        finish="tool_calls",
        thinking=False,
    ),
    "arguments wrapped once more": _Case(
        F9, calls=[("read", {"path": "a.txt"})], finish="tool_calls", tools=(_READ,), thinking=False
    ),
    "arguments that are a parameter": _Case(
        F9,
        calls=[("read", {"arguments": {"path": "a.txt"}})],
        finish="tool_calls",
        tools=(tool("read", "arguments"),),
        thinking=False,
    ),
    "an array and digits in a string": _Case(
        F10,
        calls=[("edit", {"path": "007", "lines": [1, 2, {"k": None}]})],
        finish="tool_calls",
        tools=(tool("edit", "path", "lines"),),
        thinking=False,
    ),
    "a think end before a call without thinking": _Case(
        F11, calls=[_BASH_CALL], finish="tool_calls", thinking=False
    ),
    "an empty block": _Case(F13, NOTICE, thinking=False),
    "one of two calls is lost": _Case(
        _A_AND_B, _LOST, calls=[("b", {"y": "é"})], finish="tool_calls", thinking=False
    ),
    "a fenced block": _Case(f"```\n{BASH}\n```\n", f"```\n{BASH}\n```\n", thinking=False),
    "a block behind an open fence": _Case(
        f"see\n```\n{BASH}", re.compile("see\n```"), "", [_BASH_CALL], "tool_calls", thinking=False
    ),
    "a block behind an open fence, cut by the budget": _Case(
        f"see\n```\n{BASH}", f"see\n```\n{BASH}", finish="length", thinking=False, budget=-1
    ),
    "a block in back-ticks": _Case(
        f"x `{BASH.replace(chr(10), '')}` y", f"x `{BASH.replace(chr(10), '')}` y", thinking=False
    ),
    "stray control strings": _Case(f"<｜User｜>a</{M}tool_calls>b<think>", "ab", thinking=False),
    "control strings in back-ticks": _Case(
        "`<｜User｜>` and `<think>`", "`<｜User｜>` and `<think>`", thinking=False
    ),
    "no tools, so no calls": _Case(BASH, re.compile(r"[^｜]*"), tools=(), thinking=False),
    "a value that ends in closers": _Case(
        BASH.replace(f"</{M}parameter>\n", ""), calls=[("bash", {"command": "sed -n '7,9p' main.go"})],
        finish="tool_calls", thinking=False,
    ),
}  # fmt: skip


def _pieces(text: str) -> list[str]:
    """The control tokens of the text as tokens of their own, as a model writes them."""
    return [piece for piece in re.split("(｜DSML｜|</?think>|<｜User｜>)", text) if piece]


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[RunningServer]:
    """Each case is there for a stream, a whole answer, and its second attempt."""
    turns = [
        {"pieces": _pieces(case.text), "match": f"<{name}>"}
        for name, case in _CASES.items()
        for _ in range(3)
    ]
    with serve_script({"turns": turns}, context=8192) as server:
        yield server


def _ask(server: RunningServer, name: str, **fields: Any) -> httpx.Response:
    case = _CASES[name]
    body: dict[str, Any] = {
        # A second attempt is told the system text again, so that the script knows it.
        "messages": [{"role": role, "content": f"<{name}>"} for role in ("system", "user")],
        "thinking": case.thinking,
        "tools": [{"type": "function", "function": schema} for schema in case.tools],
    }
    if case.budget is not None:
        sampled = sum(1 if piece[0] in "<｜" else len(piece.encode()) for piece in _pieces(case.text))
        body["max_tokens"] = case.budget if case.budget > 0 else sampled
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body | fields)
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize("name", _CASES)
def test_streamed_and_whole_answers_are_what_the_client_needs(server: RunningServer, name: str) -> None:
    case = _CASES[name]
    text = _ask(server, name, stream=True).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]
    choice = _ask(server, name).json()["choices"][0]
    message = choice["message"]

    assert choice["finish_reason"] == events[-1]["choices"][0]["finish_reason"] == case.finish
    content = "".join(delta.get("content", "") for delta in deltas)
    assert message["content"] == content
    if isinstance(case.content, str):
        assert content == case.content
    else:
        assert case.content.fullmatch(content)
    reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert message.get("reasoning_content", "") == reasoning == case.reasoning
    whole = [
        (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])
    ]
    assert [(called, json.loads(arguments)) for called, arguments in whole] == (case.calls or [])
    assert ("tool_calls" in message) == bool(case.calls)
    streamed = [(called, text) for called, text in _streamed(deltas) if _is_json(text)]
    assert streamed == whole


def _streamed(deltas: list[Any]) -> list[tuple[str, str]]:
    """Name and joined arguments of each call that was begun."""
    calls: list[tuple[str, str]] = []
    for part in (part for delta in deltas for part in delta.get("tool_calls", ())):
        function = part["function"]
        if part["index"] == len(calls):
            assert part["id"].startswith("call_")
            assert function["arguments"] == ""
            calls.append((function["name"], ""))
        else:
            called, arguments = calls[part["index"]]
            calls[part["index"]] = (called, arguments + function["arguments"])
    return calls


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True
