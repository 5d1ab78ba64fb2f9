"""Running the turn machine over fixed text, and the field fixtures of what models have written."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.text.events import (
    EndCause,
    TextDelta,
    ThinkingDelta,
    ToolArguments,
    ToolEnd,
    ToolLost,
    ToolStart,
    TurnEvent,
)
from shared.text.messages import ToolSet
from shared.text.turn import Turn

ANY_TOOLS = ToolSet([])
M = "｜DSML｜"


def pieces(text: str) -> list[str]:
    """The control strings of the text as tokens of their own, as a model writes them."""
    return [piece for piece in re.split(f"({M}|</think>)", text) if piece]


def tool(name: str, *properties: str, required: Sequence[str] = ()) -> dict[str, Any]:
    """A declared tool with string properties."""
    return {
        "name": name,
        "parameters": {
            "type": "object",
            "properties": {key: {"type": "string"} for key in properties},
            "required": list(required),
        },
    }


def parameter(key: str, value: str, string: str | None = "true") -> str:
    flag = f' string="{string}"' if string is not None else ""
    return f'<{M}parameter name="{key}"{flag}>{value}</{M}parameter>\n'


def invoke(name: str, *parameters: str) -> str:
    return f'<{M}invoke name="{name}">\n{"".join(parameters)}</{M}invoke>\n'


def block(*invokes: str, wrapper: str = "tool_calls") -> str:
    return f"<{M}{wrapper}>\n{''.join(invokes)}</{M}{wrapper}>"


BASH = block(invoke("bash", parameter("command", "sed -n '7,9p' main.go")))
BASH_ARGUMENTS = {"command": "sed -n '7,9p' main.go"}

F1 = (
    f'I\'ll run it.</think>\n\n<{M}tool_calls>\n<{M}invoke name="exec">\n'
    + parameter("command", "export A=1; ls")
    + "<task>Script</task>\n</actions>\n</tool_call>\n</function>"
)
F2 = f"Need the file first.\n\n{BASH}"
F3 = (
    f'The format is `<{M}tool_calls><{M}invoke name="bash"></{M}invoke></{M}tool_calls>`, '
    "but I need no tool.</think>The answer is 4."
)
F4A = "Need the file first.</think>\n\n" + BASH.replace("tool_calls", "function_calls")
F4B = (
    "Need the file first.</think>\n\n" + invoke("bash", parameter("command", "sed -n '7,9p' main.go")).strip()
)
F4C = f"Need the file first.</think>\n\n{BASH.removesuffix(f'</{M}tool_calls>')}"
F4D = (
    "Need the file first.</think>\n\n"
    + f'<{M}tool_calls>\n<{M}invoke name="bash">\n'
    + parameter("command", "a")
    + invoke("bash", parameter("command", "b"))
    + f"</{M}tool_calls>"
)
F6 = f'<{M}tool_ccalls>\n<{M}invoke name="read">\n{parameter("path", "a.txt")}</{M}inv>\n</{M}tool_cs>'
F7 = (
    '<function>\n<name>bash</name>\n<parameter name="command" string="true">'
    'prog --version 2>/dev/null || echo "none > here"'
    "</｜｜DSML｜｜parameter>\n</｜｜DSML｜｜invoke>\n</｜｜DSML｜｜tool_calls>"
)
F9 = block(invoke("read", parameter("arguments", '{"path":"a.txt"}', "false")))
F10 = block(invoke("edit", parameter("path", "007"), parameter("lines", '[1, 2, {"k": null}]', "false")))
F11 = f"</think>\n\n{BASH}"
F13 = f"</think>\n\n<{M}tool_calls>\n</{M}tool_calls>"
CASE_31 = "think hard</think>Sure.\n\n" + block(
    invoke(
        "bash",
        parameter("command", f"echo &amp;&amp; &lt;/{M}parameter> a && b"),
        parameter("timeout", " 10 ", "false"),
    )
)
FIXTURES = {
    "F-1": F1, "F-2": F2, "F-3": F3, "F-4a": F4A, "F-4b": F4B, "F-4c": F4C, "F-4d": F4D, "F-6": F6,
    "F-7": F7, "F-9": F9, "F-10": F10, "F-11": F11, "F-13": F13, "31": CASE_31,
    "taken back": f"plan\n\n{BASH} no</think>ok",
    "think end in a value": "a\n" + BASH.replace("sed", "x</think>y"),
    "doubled closer": block(invoke("x", parameter("p", f"v</{M}parameter>"))),
    "cut value": "Hi\n" + block(invoke("x", parameter("p", f"v</{M}parameter>w"))),
    "lost sibling": block(invoke("a", parameter("x", "{bad", "false")), invoke("b", parameter("y", "é"))),
    "fenced": f"```\n{BASH}\n```\n",
    "unclosed fence": f"see\n```\n{BASH}",
    "inline": f"x `{BASH.replace(chr(10), '')}` y\nthe ` key\n{BASH}",
    "strays": f"<｜User｜>a</{M}tool_calls>b<think>`<｜User｜>`<thi<think>nk>",
    "outer closers": BASH.replace(f"</{M}parameter>\n", ""),
    "plain": '<tool_calls><invoke name="x"><parameter name="p">v</parameter><parameter name="o">'
    '<parameter name="i" string="false">1</parameter></parameter></invoke></tool_calls> tail',
}  # fmt: skip


@dataclass
class Outcome:
    """What a turn came to. `events` are merged by kind; `arguments` are the joined fragments per index."""

    turn: Turn
    events: list[TurnEvent]
    arguments: dict[int, str] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """(name, arguments) of each whole call; repeated keys and order are visible in `arguments` only."""
        return [(call.name, json.loads(call.arguments)) for call in self.turn.calls]


def merge(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """Join neighbouring deltas of one kind."""
    merged: list[TurnEvent] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            merged[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ThinkingDelta) and isinstance(last, ThinkingDelta):
            merged[-1] = ThinkingDelta(last.text + event.text)
        elif (
            isinstance(event, ToolArguments) and isinstance(last, ToolArguments) and event.index == last.index
        ):
            merged[-1] = ToolArguments(event.index, last.fragment + event.fragment)
        else:
            merged.append(event)
    return merged


def new_turn(*, thinking: bool = False, tools: ToolSet | None = ANY_TOOLS, unescape: Any = None) -> Turn:
    ids = itertools.count()
    return Turn(
        thinking=thinking,
        tools=tools,
        unescape=unescape or "closing-tag-only",
        new_id=lambda: f"call_{next(ids)}",
    )


def run(
    text: str | bytes,
    *,
    thinking: bool = False,
    tools: ToolSet | None = ANY_TOOLS,
    cause: EndCause = "eos",
    cuts: Sequence[int] = (),
    step: int | None = None,
    unescape: Any = None,
) -> Outcome:
    """Feed `text` in the pieces that `cuts` or `step` make, and finish."""
    data = text.encode() if isinstance(text, str) else text
    turn = new_turn(thinking=thinking, tools=tools, unescape=unescape)
    places = list(range(step, len(data), step)) if step else sorted(cuts)
    events: list[TurnEvent] = []
    for start, end in itertools.pairwise([0, *places, len(data)]):
        events += turn.feed(data[start:end])
    events += turn.finish(cause)
    return check(Outcome(turn, merge(events)))


def check(outcome: Outcome) -> Outcome:
    """What holds for every turn: joined deltas, the life of each call, whole JSON exactly for ended calls."""
    content, reasoning = "", ""
    for event in outcome.events:
        if isinstance(event, TextDelta):
            content += event.text
        elif isinstance(event, ThinkingDelta):
            reasoning += event.text
        elif isinstance(event, ToolStart):
            assert event.index == len(outcome.arguments)
            outcome.arguments[event.index] = ""
        elif isinstance(event, ToolArguments):
            assert event.index not in outcome.ended | outcome.lost
            outcome.arguments[event.index] += event.fragment
        elif isinstance(event, ToolEnd):
            assert event.index not in outcome.ended | outcome.lost
            outcome.ended.add(event.index)
        elif isinstance(event, ToolLost):
            assert event.index not in outcome.ended | outcome.lost
            outcome.lost.add(event.index)
    turn = outcome.turn
    assert (content, reasoning) == (turn.content, turn.reasoning)
    assert outcome.ended | outcome.lost == set(outcome.arguments)
    assert len(outcome.ended) == len(turn.calls)
    for call, index in zip(turn.calls, sorted(outcome.ended), strict=True):
        assert call.arguments == outcome.arguments[index]
        assert isinstance(json.loads(call.arguments), dict)
    for index in outcome.lost:
        with_end = outcome.arguments[index]
        try:
            json.loads(with_end)
        except ValueError:
            continue
        raise AssertionError(f"a lost call reads as whole JSON: {with_end}")
    if turn.finish_reason == "tool_calls":
        assert turn.calls
    return outcome
