"""The events of a turn as the items of a response, streamed and whole, in the shapes that clients know."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.encode.answer import Answer
from apps.serve.encode.json_string import MemberText
from apps.serve.encode.response_items import CallItem
from apps.serve.encode.response_object import ResponseHead, response_body
from apps.serve.encode.responses import ResponseStream
from apps.serve.errors import Failure
from apps.serve.jobs import Emitted, Finished, PrefillDone, Timings, Usage
from apps.serve.schema.responses_tools import WireTool
from shared.text.events import TextDelta, ThinkingDelta, ToolArguments, ToolEnd, ToolStart, TurnEvent
from shared.text.messages import ToolCall
from tests.support.event_streams import named_events
from tests.support.turns import BASH, CASE_31, FIXTURES, Outcome, run

_HEAD = ResponseHead("resp_1", 5, "m", "auto")
_USAGE = Usage(prompt=10, cached=7, cache_write=2, completion=20, reasoning=5)
_WIRES = {
    "ns_close": WireTool("function", "close", "ns_"),
    "patch": WireTool("custom", "patch"),
    "local_shell": WireTool("local_shell", "local_shell"),
    "tool_search": WireTool("tool_search", "tool_search"),
}


def _finished(reason: Any = "stop", calls: Iterable[ToolCall] = (), *, closed: bool = True) -> Finished:
    return Finished(reason, None, _USAGE, tuple(calls), closed, Timings(0.0015, 4.0))


def _ids() -> Any:
    counter = itertools.count()
    return lambda prefix: f"{prefix}{next(counter)}"


def _stream(*, shows_reasoning: bool = True) -> ResponseStream:
    return ResponseStream(_HEAD, _WIRES, shows_reasoning=shows_reasoning, new_id=_ids())


def _parsed(frames: bytes) -> list[dict[str, Any]]:
    """The data of each event, named as its type says and numbered without a gap."""
    events = named_events(frames.decode())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def _streamed(
    events: Iterable[TurnEvent], finished: Finished | None = None, *, shows_reasoning: bool = True
) -> list[dict[str, Any]]:
    stream = _stream(shows_reasoning=shows_reasoning)
    frames = stream.prefilled(PrefillDone(Usage(10, 7, 2)))
    frames += b"".join(stream.emitted([event]) for event in events)
    return _parsed(frames + stream.finished(finished or _finished()))


def _end_of(outcome: Outcome) -> Finished:
    turn = outcome.turn
    return _finished(turn.finish_reason, turn.calls, closed=turn.thinking_closed)


def _call(name: str, *fragments: str, index: int = 0) -> list[TurnEvent]:
    pieces = [ToolArguments(index, fragment) for fragment in fragments]
    return [ToolStart(index, f"call_{index}", name), *pieces, ToolEnd(index)]


def _types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def _output(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = events[-1]["response"]["output"]
    return output


class TestStream:
    def test_reasoning_text_and_a_call(self) -> None:
        outcome = run(CASE_31, thinking=True)
        events = _streamed(outcome.events, _end_of(outcome))
        assert _types(events) == [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ]
        assert [event["output_index"] for event in events[2:-1]] == [0] * 6 + [1] * 6 + [2] * 4
        arguments = '{"command":"echo &amp;&amp; </｜DSML｜parameter> a && b","timeout":10}'
        reasoning, message, call = (event["item"] for event in events if "output_item.done" in event["type"])
        assert reasoning == {
            "id": "rs_0",
            "type": "reasoning",
            "status": "completed",
            "summary": [{"type": "summary_text", "text": "think hard"}],
        }
        assert message == {
            "id": "msg_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Sure.", "annotations": []}],
        }
        assert call == {
            "id": "fc_2",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_0",
            "name": "bash",
            "arguments": arguments,
        }
        assert events[16]["arguments"] == arguments
        assert _output(events) == [reasoning, message, call]

    def test_the_first_and_the_last_event_hold_the_response(self) -> None:
        events = _streamed([TextDelta("abc")])
        created, completed = events[0]["response"], events[-1]["response"]
        assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
        assert completed["usage"] == {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 3},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": 30,
        }
        assert completed["timings"]["prompt_n"] == 3
        for response in (created, completed):
            assert (response["id"], response["object"], response["created_at"]) == ("resp_1", "response", 5)
            assert response["error"] is None
            assert response["incomplete_details"] is None
            assert (response["tool_choice"], response["metadata"], response["tools"]) == ("auto", {}, [])

    def test_reasoning_that_was_not_asked_for_is_held_back(self) -> None:
        outcome = run("plan</think>fine", thinking=True)
        events = _streamed(outcome.events, _end_of(outcome), shows_reasoning=False)
        assert [item["type"] for item in _output(events)] == ["message"]
        assert "plan" not in json.dumps(events)
        assert _stream().held() == b": working\n\n"

    def test_the_first_sign_of_life_opens_the_response(self) -> None:
        stream = _stream()
        assert _types(_parsed(stream.waiting())) == ["created", "in_progress"]
        assert stream.waiting() == b": prefill\n\n"
        assert stream.prefilled(PrefillDone(_USAGE)) == b""

    def test_what_the_budget_cut_is_incomplete(self) -> None:
        events = _streamed([TextDelta("abc")], _finished("length"))
        assert events[-1]["type"] == "response.incomplete"
        response = events[-1]["response"]
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert [item["status"] for item in response["output"]] == ["incomplete"]

    @pytest.mark.parametrize("reason", ["stop", "length"])
    def test_thinking_that_never_ended_is_incomplete(self, reason: str) -> None:
        events = _streamed([ThinkingDelta("so")], _finished(reason, closed=False))
        assert [item["status"] for item in _output(events)] == ["incomplete"]
        assert events[-1]["response"]["status"] == ("completed" if reason == "stop" else "incomplete")

    def test_a_failure_ends_the_stream_with_what_there_is(self) -> None:
        stream = _stream()
        stream.prefilled(PrefillDone(_USAGE))
        stream.emitted([TextDelta("ab")])
        event = json.loads(stream.failed(Failure(500, "broken")).decode().split("data: ")[-1])
        assert event["type"] == "response.failed"
        response = event["response"]
        assert response["error"] == {"code": "server_error", "message": "broken"}
        assert [item["status"] for item in response["output"]] == ["incomplete"]
        early = _parsed(_stream().failed(Failure(400, "long", code="context_length_exceeded")))
        assert _types(early) == ["created", "in_progress", "failed"]
        assert early[-1]["response"]["error"]["code"] == "context_length_exceeded"

    def test_a_call_that_was_lost_stays_open_and_the_notice_is_a_message(self) -> None:
        text = "Hi." + FIXTURES["lost sibling"]
        outcome = run(text)
        events = _streamed(outcome.events, _end_of(outcome))
        done = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
        added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
        assert added == [0, 1, 2, 3]
        assert done == [0, 2, 3]
        message, call, notice = _output(events)
        assert message["content"][0]["text"] == "Hi."
        assert call["name"] == "b"
        assert notice["content"][0]["text"].startswith("A tool call could not be read")

    @pytest.mark.parametrize("name", sorted(FIXTURES))
    @pytest.mark.parametrize("thinking", [True, False])
    def test_streamed_and_whole_answers_hold_the_same(self, name: str, thinking: bool) -> None:
        outcome = run(FIXTURES[name], thinking=thinking)
        finished = _end_of(outcome)
        answer = Answer()
        answer.add(Emitted(outcome.events))
        whole = response_body(_HEAD, answer, finished, _WIRES, shows_reasoning=True, new_id=_ids())
        output = _output(_streamed(outcome.events, finished))
        for kind, text in (("reasoning", "summary"), ("message", "content")):
            said = [
                "".join(i[text][0]["text"] for i in o if i["type"] == kind) for o in (output, whole["output"])
            ]
            assert said[0].replace("\n", "") == said[1].replace("\n", "")
        calls = [[i["arguments"] for i in o if "call" in i["type"]] for o in (output, whole["output"])]
        assert calls[0] == calls[1] == [call.arguments for call in outcome.turn.calls]
        assert whole["status"] == "completed"
        assert "DSML" not in "".join(i["content"][0]["text"] for i in output if i["type"] == "message") or (
            name in ("fenced", "unclosed fence", "inline", "F-3")
        )


class TestWireShapes:
    def test_a_namespaced_call_has_its_own_name(self) -> None:
        events = _streamed(_call("ns_close", '{"id":', '"x"}'))
        added, done = events[2]["item"], events[-2]["item"]
        assert (added["name"], added["namespace"], added["arguments"]) == ("close", "ns_", "")
        assert (done["name"], done["namespace"], done["arguments"]) == ("close", "ns_", '{"id":"x"}')
        assert [e["delta"] for e in events if e["type"].endswith("arguments.delta")] == ['{"id":', '"x"}']
        assert events[-3]["namespace"] == "ns_"

    def test_a_free_text_tool_gets_its_text_as_it_is_written(self) -> None:
        events = _streamed(_call("patch", '{"input":"', "*** ", 'a\\n\\"b\\"', '"}'))
        assert _types(events)[2:-1] == [
            "output_item.added",
            *["custom_tool_call_input.delta"] * 2,
            "custom_tool_call_input.done",
            "output_item.done",
        ]
        assert [events[3]["delta"], events[4]["delta"]] == ["*** ", 'a\n"b"']
        assert events[2]["item"]["input"] == ""
        (item,) = _output(events)
        assert item == {
            "id": "ctc_0",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "call_0",
            "name": "patch",
            "input": '*** a\n"b"',
        }
        assert events[-3]["input"] == item["input"]

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ('{"patch":"x"}', "x"),
            ('{"input":"x","more":1}', "x"),
            ('{"input":{"a":1}}', '{"input":{"a":1}}'),
            ('{"a":"x","b":"y"}', '{"a":"x","b":"y"}'),
            ("{}", "{}"),
            ('{"input":"\\ud800"}', "\ufffd"),
        ],
    )
    def test_free_text_under_another_name(self, arguments: str, text: str) -> None:
        (item,) = _output(_streamed(_call("patch", arguments)))
        assert item["input"] == text

    @pytest.mark.parametrize(
        ("arguments", "action"),
        [
            ('{"command":["ls","-a"]}', {"command": ["ls", "-a"]}),
            ('{"command":"ls | wc"}', {"command": ["bash", "-lc", "ls | wc"]}),
            (
                '{"command":["ls",1],"timeout_ms":5,"env":{"A":"b"}}',
                {"command": ["ls", "1"], "timeout_ms": 5, "env": {"A": "b"}},
            ),
            ('{"command":7}', {"command": []}),
            ("{}", {"command": []}),
        ],
    )
    def test_a_shell_call_has_an_action(self, arguments: str, action: dict[str, Any]) -> None:
        events = _streamed(_call("local_shell", arguments))
        (item,) = _output(events)
        assert item["type"] == "local_shell_call"
        assert item["action"] == {"type": "exec", "env": {}} | action
        assert _types(events)[2:-1] == ["output_item.added", "output_item.done"]

    def test_a_tool_search_has_its_arguments_as_an_object(self) -> None:
        events = _streamed(_call("tool_search", '{"query":', '"x","limit":1e999}'))
        (item,) = _output(events)
        assert item == {
            "id": "tsc_0",
            "type": "tool_search_call",
            "status": "completed",
            "call_id": "call_0",
            "execution": "client",
            "arguments": {"query": "x", "limit": "1e999"},
        }
        assert _types(events)[2:-1] == ["output_item.added", "output_item.done"]

    def test_a_tool_that_nobody_declared_is_a_function(self) -> None:
        item = CallItem.of("c", "web_search", _WIRES, _ids()).body("{}", "completed")
        assert (item["type"], item["name"]) == ("function_call", "web_search")


class TestWhole:
    def test_items_follow_one_another(self) -> None:
        answer = Answer()
        answer.add(Emitted([ThinkingDelta("r"), TextDelta("t")]))
        call = ToolCall("c", "ns_close", "{}")
        finished = _finished("tool_calls", [call])
        body = response_body(_HEAD, answer, finished, _WIRES, shows_reasoning=True, new_id=_ids())
        assert [item["id"] for item in body["output"]] == ["rs_0", "msg_1", "fc_2"]
        assert {item["status"] for item in body["output"]} == {"completed"}
        assert body["output"][2]["namespace"] == "ns_"
        hidden = response_body(_HEAD, answer, finished, _WIRES, shows_reasoning=False)
        assert [item["type"] for item in hidden["output"]] == ["message", "function_call"]

    def test_a_cut_answer_is_incomplete(self) -> None:
        answer = Answer()
        answer.add(Emitted([TextDelta("t")]))
        body = response_body(_HEAD, answer, _finished("length"), _WIRES, shows_reasoning=True)
        assert (body["status"], body["output"][0]["status"]) == ("incomplete", "incomplete")
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}


@given(st.text(max_size=12), st.booleans(), st.data())
def test_a_text_member_is_decoded_as_it_comes(text: str, plain: bool, data: st.DataObject) -> None:
    """However it is cut, between the halves of a character too."""
    whole = json.dumps({"input": text, "more": "x"}, ensure_ascii=not plain, separators=(",", ":"))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=8)))
    member = MemberText("input")
    pieces = [member.feed(whole[start:end]) for start, end in itertools.pairwise([0, *cuts, len(whole)])]
    assert "".join(pieces) == text
    for piece in pieces:
        piece.encode()


def test_text_goes_out_at_once() -> None:
    member = MemberText("input")
    assert [member.feed(piece) for piece in ('{"input":"a', "b", "\\", "n", '"}', "c")] == [
        "a", "b", "", "\n", "", "",
    ]  # fmt: skip
    other = MemberText("input")
    assert [other.feed(piece) for piece in ('{"in', 'side":"a"}', "b")] == ["", "", ""]


def test_a_block_after_thinking_that_was_never_closed() -> None:
    outcome = run(f"plan\n\n{BASH}", thinking=True)
    reasoning, call = _output(_streamed(outcome.events, _end_of(outcome)))
    assert (reasoning["status"], reasoning["summary"][0]["text"]) == ("completed", "plan")
    assert call["type"] == "function_call"
