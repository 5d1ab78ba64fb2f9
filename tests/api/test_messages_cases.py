"""What models write and what a messages client gets of it, and the manners of the endpoint."""

from __future__ import annotations

import contextlib
import json
import threading
from contextlib import closing
from typing import Any

import httpx
import pytest

from shared.text.turn import NOTICE
from tests.support.api_server import RunningServer, serve_script, wait_for
from tests.support.conversations import script, turn
from tests.support.event_streams import named_events
from tests.support.raw_http import read_until, send_chat
from tests.support.turns import CASE_31, FIXTURES, M, block, invoke, parameter, tool

_TOOLS = [
    {"name": each["name"], "input_schema": each["parameters"]}
    for each in (
        tool("bash", "command", "timeout"),
        tool("exec", "command"),
        tool("read", "path"),
        tool("edit", "path", "lines"),
        tool("x", "p", "o"),
        tool("a", "x"),
        tool("b", "y"),
    )
]
_ARGUMENTS_31 = {"command": f"echo &amp;&amp; </{M}parameter> a && b", "timeout": 10}
_OFF = {"type": "disabled"}


def _body(content: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 3000, "messages": [{"role": "user", "content": content}]} | fields


def _post(server: RunningServer, body: dict[str, Any], path: str = "/v1/messages") -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=30)


def _ask(server: RunningServer, content: str = "hello", **fields: Any) -> Any:
    response = _post(server, _body(content, **fields))
    assert response.status_code == 200, response.text
    return response.json()


def _stream(server: RunningServer, content: str = "hello", **fields: Any) -> list[dict[str, Any]]:
    response = _post(server, _body(content, stream=True, **fields))
    assert response.status_code == 200, response.text
    return _events(response.text)


def _events(text: str) -> list[dict[str, Any]]:
    """Every event but the signs of life; each is named as its type says."""
    return [event for event in named_events(text) if event["type"] != "ping"]


def _blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content that a client puts together; blocks must follow one another, each closed in its turn."""
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"] | {"json": ""})
        elif kind == "content_block_delta":
            assert is_open
            assert event["index"] == len(blocks) - 1
            for key, value in event["delta"].items():
                if key != "type":
                    name = "json" if key == "partial_json" else key
                    blocks[-1][name] += value
        elif kind == "content_block_stop":
            assert is_open
            assert event["index"] == len(blocks) - 1
        is_open = kind in ("content_block_start", "content_block_delta")
    assert not is_open
    return blocks


def _stop(events: list[dict[str, Any]]) -> dict[str, Any]:
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    delta: dict[str, Any] = events[-2]["delta"]
    return delta


# --- answers ---------------------------------------------------------------------------------------


def test_a_stream_of_reasoning_text_and_a_call() -> None:
    with serve_script(script(CASE_31)) as server:
        events = _stream(server, tools=_TOOLS)
    thinking, text, call = _blocks(events)
    message = events[0]["message"]
    assert (thinking["type"], thinking["thinking"], thinking["signature"]) == (
        "thinking",
        "think hard",
        message["id"],
    )
    assert (text["type"], text["text"]) == ("text", "Sure.")
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "bash", {})
    assert json.loads(call["json"]) == _ARGUMENTS_31
    # Piece by piece, as they were written.
    assert sum(event.get("delta", {}).get("type") == "input_json_delta" for event in events) > 20
    assert _stop(events) == {"stop_reason": "tool_use", "stop_sequence": None}


def test_thinking_alone_is_followed_by_an_empty_text() -> None:
    with serve_script(script("abc</think>")) as server:
        events, whole = _stream(server), _ask(server)
    assert [(b["type"], b.get("thinking"), b.get("text")) for b in _blocks(events)] == [
        ("thinking", "abc", None),
        ("text", None, ""),
    ]
    assert _stop(events)["stop_reason"] == whole["stop_reason"] == "end_turn"
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]


@pytest.mark.parametrize(
    ("thinking", "kinds"),
    [
        ({"thinking": _OFF}, ["text"]),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, ["thinking", "text"]),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, ["thinking", "text"]),
        ({}, ["thinking", "text"]),
    ],
)
def test_thinking_shows_only_where_it_was_not_turned_off(thinking: dict[str, Any], kinds: list[str]) -> None:
    text = "fine" if kinds == ["text"] else "hm</think>fine"
    with serve_script(script(text)) as server:
        events = _stream(server, context_management={"edits": []}, **thinking)
    blocks = _blocks(events)
    assert [block["type"] for block in blocks] == kinds
    assert blocks[-1]["text"] == "fine"


def test_streamed_and_whole_answers_are_the_same_whatever_the_model_writes() -> None:
    """A call that got lost shows in a stream, with its JSON open; it is no part of a whole answer."""
    turns = [{"match": f"<{name}>"} | turn(text) for name, text in FIXTURES.items()]
    with serve_script({"turns": turns}, context=8192) as server:
        for name in FIXTURES:
            events = _stream(server, f"<{name}>", tools=_TOOLS)
            blocks, calls = _blocks(events), _whole_calls(events)
            texts = {key: "".join(block.get(key, "") for block in blocks) for key in ("thinking", "text")}
            assert all(M not in text or "`" in text for text in texts.values()), name
            assert (_stop(events)["stop_reason"] == "tool_use") == bool(calls), name
            if NOTICE in texts["text"] and not calls:
                continue  # a whole answer would be tried again
            whole = _ask(server, f"<{name}>", tools=_TOOLS)
            content = whole["content"]
            assert texts == {key: "".join(block.get(key, "") for block in content) for key in texts}, name
            assert calls == [(b["name"], b["input"]) for b in content if b["type"] == "tool_use"], name
            assert _stop(events) == {key: whole[key] for key in ("stop_reason", "stop_sequence")}, name


def _whole_calls(events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Name and arguments of each call whose JSON is closed."""
    calls = []
    for each in _blocks(events):
        if each["type"] == "tool_use":
            with contextlib.suppress(json.JSONDecodeError):
                calls.append((each["name"], json.loads(each["json"])))
    return calls


def test_a_lost_call_cannot_be_run_and_is_told() -> None:
    lost = block(invoke("bash", parameter("command", f"rm -rf x</{M}parameter>y")))
    with serve_script(script(lost)) as server:
        events = _stream(server, tools=_TOOLS, thinking=_OFF)
    call, text = _blocks(events)
    assert (call["type"], call["name"]) == ("tool_use", "bash")
    with pytest.raises(json.JSONDecodeError):
        json.loads(call["json"])
    assert text["text"].startswith(NOTICE)
    assert _stop(events)["stop_reason"] == "end_turn"


@pytest.mark.parametrize("pieces", [["ab", "Xc"], ["a", "bX", "c"], ["a", "b", "X", "c"]])
def test_a_stop_sequence_is_named(pieces: list[str]) -> None:
    with serve_script({"turns": [{"pieces": pieces}]}) as server:
        events = _stream(server, thinking=_OFF, stop_sequences=["never", "X"])
        whole = _ask(server, thinking=_OFF, stop_sequences=["never", "X"])
    (text,) = _blocks(events)
    assert text["text"] == whole["content"][0]["text"] == "ab"
    assert _stop(events) == {"stop_reason": "stop_sequence", "stop_sequence": "X"}
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "X")


def test_an_answer_that_the_budget_cuts() -> None:
    with serve_script(script("abc def")) as server:
        events = _stream(server, max_tokens=5)
    assert [block.get("thinking", "") for block in _blocks(events)] == ["abc d", ""]
    assert _stop(events)["stop_reason"] == "max_tokens"
    assert events[-2]["usage"] == {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 5}}


def test_characters_cut_in_the_middle_come_whole_in_every_kind_of_block() -> None:
    flag = [{"hex": "F09F"}, {"hex": "9A"}, {"hex": "A9"}]
    call = "\n\n" + block(invoke("bash", parameter("command", "@")))
    before, after = call.split("@")
    pieces = [*flag, "</think>", *flag, *turn(before)["pieces"], *flag, *turn(after)["pieces"]]
    with serve_script({"turns": [{"pieces": pieces}]}) as server:
        thinking, text, tool_use = _blocks(_stream(server, tools=_TOOLS))
    assert thinking["thinking"] == text["text"] == json.loads(tool_use["json"])["command"] == "🚩"


def test_a_structured_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"format": {"type": "json_schema", "schema": schema | {"additionalProperties": False}}}
    told = {"pieces": [{"text": "x", "else": [piece]} for piece in '{"a":1}']}
    with serve_script({"turns": [told]}) as server:
        answer = _ask(server, thinking=_OFF, output_config=form)
    assert json.loads(answer["content"][0]["text"]) == {"a": 1}


# --- signs of life -----------------------------------------------------------------------------------


def test_events_and_no_comments_keep_a_long_prefill_alive() -> None:
    gate = threading.Event()
    turns = {"turns": [{"pieces": ["a</think>hi"], "prefill_block_s": 1}]}
    body = _body(stream=True, thinking=_OFF)
    with (
        serve_script(turns, gate=gate) as server,
        closing(send_chat(server, body, path="/v1/messages?beta=true")) as connection,
    ):
        waited = read_until(connection, b'event: ping\ndata: {"type":"ping"}\n\n', 3)
        gate.set()
        rest = read_until(connection, b"message_stop")
    assert waited.startswith(b"HTTP/1.1 200")
    assert b"message_start" not in waited
    assert b"event: message_start" in rest
    assert b"\n: " not in waited + rest


def test_events_keep_an_answer_alive_that_is_held_back_and_one_that_waits() -> None:
    gate = threading.Event()
    held = {"pieces": ["</think>", "a `", {"text": "b` c", "delay_s": 1}]}
    with (
        serve_script({"turns": [held, turn("x</think>y")]}, gate=gate) as server,
        closing(send_chat(server, _body(stream=True), path="/v1/messages")) as first,
    ):
        wait_for(lambda: server.worker.busy)
        with closing(send_chat(server, _body(stream=True), path="/v1/messages")) as second:
            read_until(first, b"event: ping", 2)
            assert read_until(second, b"event: ping", 2).count(b"message_start") == 0
            gate.set()
            read_until(first, b"message_stop")
            read_until(second, b"message_stop")


# --- counts and limits -------------------------------------------------------------------------------


def test_the_three_input_figures_add_up_and_match_the_count() -> None:
    with serve_script(script("a</think>b", "c</think>d")) as server:
        counted = _post(server, _body("x" * 300), "/v1/messages/count_tokens").json()
        first = _ask(server, "x" * 300)["usage"]
        events = _stream(server, "x" * 300)
    second = events[0]["message"]["usage"]
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    prompt = counted["input_tokens"]
    # The prompt's last token is behind the last checkpoint.
    assert [first[name] for name in names] == [1, prompt - 1, 0]
    assert [second[name] for name in names] == [1, 0, prompt - 1]
    assert second["output_tokens"] == 0
    assert "output_tokens" in events[-2]["usage"]


def test_one_token_too_many_is_refused_in_the_words_that_clients_look_for() -> None:
    with serve_script(script("x</think>y"), context=500) as server:
        spare = 500 - _post(server, _body(""), "/v1/messages/count_tokens").json()["input_tokens"]
        answers = [_post(server, _body("x" * (spare + more))) for more in (-1, 0)]
        streamed = _post(server, _body("x" * spare, stream=True))
        counted = _post(server, _body("x" * spare), "/v1/messages/count_tokens")
    assert answers[0].status_code == 200
    assert answers[1].status_code == streamed.status_code == 400
    assert answers[1].json() == streamed.json()
    assert answers[1].json() == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 500 tokens > 500 maximum",
            "n_prompt_tokens": 500,
            "n_ctx": 500,
        },
    }
    # Whoever wants to know how long it is may still ask.
    assert counted.json() == {"input_tokens": 500}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"messages":[]}', b'{"messages":[{"role":"user","content":7}]}']
)
def test_what_is_wrong_is_told_in_the_shape_of_this_dialect(path: str, body: bytes) -> None:
    with serve_script(script("x")) as server:
        response = httpx.post(server.url + path, content=body)
    assert response.status_code == 400
    answer = response.json()
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"]


def test_an_image_is_refused_by_name() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    image = [{"type": "text", "text": "what is this?"}, {"type": "image", "source": source}]
    with serve_script(script("x")) as server:
        response = _post(server, _body() | {"messages": [{"role": "user", "content": image}]})
    assert response.status_code == 400
    assert "reads no images" in response.json()["error"]["message"]
