"""The events of a turn as content blocks: each is opened, filled and closed before the next one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.encode.answer import Answer
from apps.serve.encode.messages import MessageHead, MessageStream, message_body
from apps.serve.errors import Failure
from apps.serve.jobs import Emitted, Finished, PrefillDone, Timings, Usage
from shared.text.events import (
    TextDelta,
    ThinkingDelta,
    ToolArguments,
    ToolEnd,
    ToolLost,
    ToolStart,
    TurnEvent,
)
from shared.text.messages import ToolCall
from tests.support.event_streams import named_events

_HEAD = MessageHead("msg_1", "m")
_USAGE = Usage(prompt=10, cached=7, cache_write=2, completion=20, reasoning=5)


def _finished(reason: Any = "stop", stop: str | None = None, calls: Iterable[ToolCall] = ()) -> Finished:
    return Finished(reason, stop, _USAGE, tuple(calls), True, Timings(0.0015, 4.0))


def _streamed(*events: TurnEvent, finished: Finished | None = None) -> list[dict[str, Any]]:
    stream = MessageStream(_HEAD)
    frames = stream.prefilled(PrefillDone(Usage(10, 7, 2)))
    frames += b"".join(stream.emitted([event]) for event in events)
    return named_events((frames + stream.finished(finished or _finished())).decode())


def _blocks(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Type and joined deltas of each block; checks that they follow one another."""
    blocks: list[tuple[str, str]] = []
    is_open = False
    for event in events:
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(blocks)
            blocks.append((event["content_block"]["type"], ""))
            is_open = True
        elif event["type"] == "content_block_delta":
            assert is_open
            assert event["index"] == len(blocks) - 1
            (text,) = (value for key, value in event["delta"].items() if key != "type")
            blocks[-1] = blocks[-1][0], blocks[-1][1] + text
        elif event["type"] == "content_block_stop":
            assert is_open
            assert event["index"] == len(blocks) - 1
            is_open = False
    assert not is_open
    return blocks


def test_thinking_text_and_a_call() -> None:
    events = _streamed(
        ThinkingDelta("th"),
        ThinkingDelta("ink"),
        TextDelta("Sure."),
        ToolStart(0, "toolu_1", "bash"),
        ToolArguments(0, '{"a":'),
        ToolArguments(0, "1}"),
        ToolEnd(0),
        finished=_finished("tool_calls"),
    )
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"] == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 1,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 7,
            "output_tokens": 0,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}},
    ]
    # The signature comes once, right before the end of the thinking.
    assert events[4]["delta"] == {"type": "signature_delta", "signature": "msg_1"}
    assert events[10]["delta"] == {"type": "input_json_delta", "partial_json": '{"a":'}
    last = events[-2]
    assert last["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert last["usage"] == {"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}}
    assert (last["timings"]["cache_n"], last["timings"]["prompt_n"]) == (7, 3)


@pytest.mark.parametrize("events", [(), (ThinkingDelta("x"),)])
def test_an_answer_without_text_and_calls_has_an_empty_text(events: tuple[TurnEvent, ...]) -> None:
    assert _blocks(_streamed(*events))[-1] == ("text", "")


def test_the_json_of_a_lost_call_stays_open_and_its_block_does_not() -> None:
    lost = (ToolStart(0, "toolu_1", "a"), ToolArguments(0, '{"x":'), ToolLost(0))
    whole = (ToolStart(1, "toolu_2", "b"), ToolArguments(1, "{}"), ToolEnd(1))
    events = _streamed(*lost, *whole, TextDelta("Notice"))
    assert _blocks(events) == [("tool_use", '{"x":'), ("tool_use", "{}"), ("text", "Notice")]


@pytest.mark.parametrize("end", [ToolEnd(0), ToolLost(0)])
def test_a_call_is_closed_as_soon_as_it_ends(end: TurnEvent) -> None:
    frames = MessageStream(_HEAD).emitted([ToolStart(0, "toolu_1", "a"), ToolArguments(0, "{"), end])
    assert named_events(frames.decode())[-1] == {"type": "content_block_stop", "index": 0}


def test_signs_of_life_and_failures() -> None:
    stream = MessageStream(_HEAD)
    assert stream.waiting() == stream.held() == b'event: ping\ndata: {"type":"ping"}\n\n'
    (error,) = named_events(stream.failed(Failure(500, "the engine failed")).decode())
    assert error == {"type": "error", "error": {"type": "api_error", "message": "the engine failed"}}


@pytest.mark.parametrize(
    ("finished", "reason", "sequence"),
    [
        (_finished(), "end_turn", None),
        (_finished("length"), "max_tokens", None),
        (_finished("tool_calls"), "tool_use", None),
        (_finished("stop", "END"), "stop_sequence", "END"),
    ],
)
def test_why_it_stopped(finished: Finished, reason: str, sequence: str | None) -> None:
    expected = {"stop_reason": reason, "stop_sequence": sequence}
    assert _streamed(finished=finished)[-2]["delta"] == expected
    body = message_body(_HEAD, Answer(), finished)
    assert {key: body[key] for key in expected} == expected


def test_a_whole_answer() -> None:
    answer = Answer()
    answer.add(Emitted([ThinkingDelta("think"), TextDelta("Sure.")]))
    body = message_body(
        _HEAD, answer, _finished("tool_calls", calls=[ToolCall("toolu_1", "bash", '{"a":1}')])
    )
    assert body["content"] == [
        {"type": "thinking", "thinking": "think", "signature": "msg_1"},
        {"type": "text", "text": "Sure."},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"a": 1}},
    ]
    usage = body["usage"]
    inputs = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    assert [usage[key] for key in inputs] == [1, 2, 7]
    assert sum(usage[key] for key in inputs) == _USAGE.prompt
    assert usage["output_tokens"] == 20
    assert body["timings"]["predicted_n"] == 20


def test_a_whole_answer_leaves_out_what_is_empty_but_is_never_empty() -> None:
    only_call = message_body(_HEAD, Answer(), _finished(calls=[ToolCall("i", "n", "{}")]))
    assert [block["type"] for block in only_call["content"]] == ["tool_use"]
    thinking = Answer()
    thinking.add(Emitted([ThinkingDelta("x")]))
    blocks = [message_body(_HEAD, answer, _finished())["content"] for answer in (Answer(), thinking)]
    assert [[block["type"] for block in content] for content in blocks] == [["text"], ["thinking", "text"]]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"n":1e999,"m":1.5}', {"n": "1e999", "m": 1.5}),
        ('{"s":"\\ud800"}', {"s": "\ufffd"}),
        ('{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_arguments_that_no_json_number_or_text_can_hold(arguments: str, value: Any) -> None:
    body = message_body(_HEAD, Answer(), _finished(calls=[ToolCall("i", "n", arguments)]))
    assert body["content"][0]["input"] == value
    json.dumps(body, allow_nan=False, ensure_ascii=False).encode()


_TURN = st.lists(
    st.sampled_from(["think", "text", "call", "lost"]),
    max_size=8,
)


@given(_TURN)
def test_blocks_never_overlap_whatever_a_turn_holds(kinds: list[str]) -> None:
    numbers = itertools.count()
    events: list[TurnEvent] = []
    for kind in kinds:
        index = next(numbers)
        if kind == "think":
            events.append(ThinkingDelta("t"))
        elif kind == "text":
            events.append(TextDelta("x"))
        else:
            events += [ToolStart(index, f"toolu_{index}", "f"), ToolArguments(index, "{")]
            events.append(ToolEnd(index) if kind == "call" else ToolLost(index))
    blocks = _blocks(_streamed(*events))
    assert blocks
    assert "".join(text for kind, text in blocks if kind == "text") == "x" * kinds.count("text")
    assert sum(kind == "tool_use" for kind, _ in blocks) == kinds.count("call") + kinds.count("lost")
