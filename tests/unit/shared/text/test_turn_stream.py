"""What goes out when: nothing is held that is certain, and no step costs more than what it brings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import pytest

from shared.text import dsml_tags
from shared.text.byte_source import ByteSource
from shared.text.dsml_values import DecodeState
from shared.text.events import TextDelta, ThinkingDelta, ToolArguments, ToolStart, TurnEvent
from tests.support.turns import BASH, CASE_31, M, block, invoke, merge, new_turn, parameter

OPEN = f'<{M}tool_calls>\n<{M}invoke name="x">\n'
STRING = f'{OPEN}<{M}parameter name="p" string="true">'
JSON = f'{OPEN}<{M}parameter name="p" string="false">'


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize("lead", ["", "think\n"])
@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("Hello", DecodeState.OUTSIDE),
        (f"<{M}tool_calls>", DecodeState.STRUCTURAL),
        (OPEN, DecodeState.STRUCTURAL),
        (STRING, DecodeState.STRING_BODY),
        (STRING + "abc<", DecodeState.STRING_BODY),
        (STRING + "abc< ", DecodeState.STRING_BODY),
        (STRING + "abc</", DecodeState.STRUCTURAL),
        (STRING + "abc</｜DS", DecodeState.STRUCTURAL),
        (STRING + "abc</d", DecodeState.STRING_BODY),
        (STRING + f"abc</{M}invoke>", DecodeState.STRUCTURAL),
        (STRING + f"abc</{M}parameter>", DecodeState.STRUCTURAL),
        (JSON + "[1, ", DecodeState.JSON_STRUCTURAL),
        (JSON + '["a', DecodeState.JSON_STRING),
        (JSON + '["a"', DecodeState.JSON_STRUCTURAL),
        (JSON + f'["</{M}parameter>', DecodeState.JSON_STRING),
        (BASH, DecodeState.OUTSIDE),
        ("`" + STRING.replace("\n", ""), DecodeState.OUTSIDE),
        ("```\n" + STRING, DecodeState.OUTSIDE),
    ],
)
def test_decode_state(text: str, state: DecodeState, lead: str, step: int) -> None:
    turn = new_turn(thinking=bool(lead))
    data = (lead + text).encode()
    for start in range(0, len(data), step):
        turn.feed(data[start : start + step])
    assert turn.decode_state is state


def test_decode_state_without_tools() -> None:
    turn = new_turn(tools=None)
    turn.feed(STRING.encode())
    assert turn.decode_state is DecodeState.OUTSIDE


def fed(text: str, step: int, *, thinking: bool = False) -> Iterator[list[TurnEvent]]:
    turn = new_turn(thinking=thinking)
    data = text.encode()
    for start in range(0, len(data), step):
        yield turn.feed(data[start : start + step])
    yield turn.finish("eos")


def test_seven_byte_steps() -> None:
    events = list(itertools.chain.from_iterable(fed(CASE_31, 7, thinking=True)))
    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["think h", "ard"]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Sur", "e."]


def test_white_space_waits_for_what_follows() -> None:
    text = "Hi \n\n there <b>x</b> 1 < 2"
    steps = list(fed(text, 4))
    assert steps[0] == [TextDelta("Hi")]
    assert merge(itertools.chain.from_iterable(steps)) == [TextDelta(text)]


def test_long_argument_streams() -> None:
    value = 'line with "quotes", tabs\t, é and 中 < & </b>\n' * 90
    steps = list(fed(block(invoke("write", parameter("content", value))), 20))
    starts = [i for i, events in enumerate(steps) if any(isinstance(e, ToolStart) for e in events)]
    arguments = [i for i, events in enumerate(steps) if any(isinstance(e, ToolArguments) for e in events)]
    assert starts[0] < arguments[0]
    assert max(b - a for a, b in itertools.pairwise(arguments)) <= 4
    fragments = [e.fragment for events in steps for e in events if isinstance(e, ToolArguments)]
    assert json.loads("".join(fragments)) == {"content": value}
    assert len(fragments) > 150


def test_long_json_streams() -> None:
    value = json.dumps({"rows": [{"id": i, "text": "some words"} for i in range(200)]})
    steps = list(fed(block(invoke("write", parameter("content", value, "false"))), 20))
    arguments = [i for i, events in enumerate(steps) if any(isinstance(e, ToolArguments) for e in events)]
    assert max(b - a for a, b in itertools.pairwise(arguments)) <= 3


def test_split_characters_in_arguments() -> None:
    data = block(invoke("x", parameter("p", "🚩中"))).encode()
    turn = new_turn()
    events: list[TurnEvent] = []
    for byte in data:
        events += turn.feed(bytes((byte,)))
    fragments = [e.fragment for e in events if isinstance(e, ToolArguments)]
    assert "🚩" in fragments
    assert "中" in fragments
    assert not any("\ufffd" in fragment for fragment in fragments)


def test_code_without_markup_is_not_held() -> None:
    turn = new_turn()
    assert merge(turn.feed(b"```\nfoo")) == [TextDelta("```\nfoo")]
    assert turn.feed(b"<div>") == [TextDelta("<div>")]


def test_markup_in_undecided_code_is_held_until_it_closes() -> None:
    turn = new_turn()
    assert merge(turn.feed(b"```\na<think>b\n``")) == [TextDelta("```\na")]
    assert merge(turn.feed(b"`\n")) == [TextDelta("<think>b\n```")]
    turn = new_turn()
    assert merge(turn.feed(b"x `<think>")) == [TextDelta("x `")]
    assert merge(turn.feed(b"` y")) == [TextDelta("<think>` y")]
    turn = new_turn()
    turn.feed(b"x `<think> y")
    assert merge(turn.feed(b"\nz")) == [TextDelta(" y\nz")]


def test_thinking_before_a_tentative_block_is_not_held() -> None:
    turn = new_turn(thinking=True)
    assert merge(turn.feed(b"plan " + BASH.encode() + b" more")) == [ThinkingDelta("plan")]
    text = merge(turn.feed(b"</think>"))
    assert isinstance(text[0], ThinkingDelta)
    assert text[0].text.startswith(" \n\n")


BODY = 'if a < b && c > d { say("x | y"); }\n'
LONG: dict[str, Callable[[int], str]] = {
    "string": lambda n: block(invoke("w", parameter("c", BODY * n))),
    "json": lambda n: block(invoke("w", parameter("c", json.dumps([BODY] * n), "false"))),
    "one long JSON string": lambda n: block(invoke("w", parameter("c", json.dumps(BODY * n), "false"))),
    "white space after a closer": lambda n: STRING + f"v</{M}invoke>" + " " * (30 * n) + "x",
    "chain of closers": lambda n: STRING + f"</{M}invoke>\n" * n,
    "undecided fence": lambda n: "```\n<think>" + "abc <think> d\n" * n,
    "undecided span": lambda n: "`<think>" + "abc <think> `` d" * n,
    "unfinished openers": lambda n: f"<{M} " * n,
    "plain wrapper and white space": lambda n: "<tool_calls>" + " " * (30 * n),
    "angles": lambda n: "<" * (20 * n),
    "nested removals": lambda n: "<" * (4 * n) + "<think>" + "think>" * (4 * n),
    "escapes": lambda n: block(invoke("w", parameter("c", "&lt;" * (10 * n)))),
    "blocks in thinking": lambda n: (BASH + " ") * (n // 4),
    "blocks in thinking that closes": lambda n: (BASH + " ") * (n // 4) + "</think>",
    "lost blocks in thinking": lambda n: (BASH.replace(' name="bash"', "") + " ") * (n // 4),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("step", [5, 1 << 20])
def test_work_is_linear(name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the bytes that pass through the window and those that tags are looked for in."""
    work = 0
    load, marked = ByteSource.load, dsml_tags._marked_head

    def counting_load(source: ByteSource) -> bool:
        nonlocal work
        loaded = load(source)
        work += len(source.window) if loaded else 0
        return loaded

    def counting_head(cursor: dsml_tags._Cursor, closing_only: bool) -> object:
        nonlocal work
        work += 10
        return marked(cursor, closing_only)

    monkeypatch.setattr(ByteSource, "load", counting_load)
    monkeypatch.setattr(dsml_tags, "_marked_head", counting_head)
    amounts = []
    for size in (200, 400):
        work = 0
        list(fed(LONG[name](size), step, thinking="thinking" in name))
        amounts.append(work)
    print(name, amounts)
    assert amounts[1] < 2.2 * amounts[0] + 3000
