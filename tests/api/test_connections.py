"""Manners on the wire: keepalive, clients that leave in every phase, an orderly end."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from apps.serve.settings import ServerSettings, Timing
from tests.support.api_server import QUICK, RunningServer, serve_script, wait_for

_QUIET = ServerSettings(timing=dataclasses.replace(QUICK, keepalive_waiting=600, keepalive_decode=600))


def _body(content: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "deepseek-chat", "messages": [{"role": "user", "content": content}]} | fields


def _send(server: RunningServer, body: dict[str, Any]) -> socket.socket:
    """A raw connection with one request on its way, so that a test can leave at any time."""
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(server.address, timeout=5)
    connection.sendall(head.encode() + data)
    return connection


def _ask(server: RunningServer, body: dict[str, Any]) -> Any:
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def _content(answer: Any) -> Any:
    return answer["choices"][0]["message"]["content"]


def _read_until(connection: socket.socket, wanted: bytes, times: int = 1) -> bytes:
    data = b""
    while data.count(wanted) < times:
        part = connection.recv(65536)
        assert part, data
        data += part
    return data


# --- keepalive -------------------------------------------------------------------------------------


def test_headers_come_at_once_and_comments_keep_a_blocked_prefill_alive() -> None:
    gate = threading.Event()
    with (
        serve_script({"turns": [{"pieces": ["hi"], "prefill_block_s": 1}]}, gate=gate) as server,
        closing(_send(server, _body(stream=True))) as connection,
    ):
        waited = _read_until(connection, b": prefill\n\n", 3)
        gate.set()
        rest = _read_until(connection, b"[DONE]")
    head = waited.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in head
    assert b"cache-control: no-cache" in head.lower()
    assert b"data:" not in waited
    assert b'"content":"h' in rest


def test_a_queued_stream_is_kept_alive_too() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a"], "prefill_block_s": 1}, {"pieces": ["b"]}]}
    with (
        serve_script(script, gate=gate) as server,
        closing(_send(server, _body(stream=True))) as first,
    ):
        wait_for(lambda: server.worker.busy)
        with closing(_send(server, _body(stream=True))) as second:
            waited = _read_until(second, b": prefill\n\n", 2)
            assert server.worker.queued == 1
            gate.set()
            _read_until(second, b"[DONE]")
        _read_until(first, b"[DONE]")
    assert waited.startswith(b"HTTP/1.1 200")
    assert b"data:" not in waited


def test_an_answer_that_is_held_back_is_kept_alive() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a", {"text": "b", "delay_s": 1}]}]}
    with (
        serve_script(script, gate=gate) as server,
        closing(_send(server, _body(stream=True))) as connection,
    ):
        held = _read_until(connection, b": working\n\n", 2)
        gate.set()
        _read_until(connection, b'"content":"b"')
    assert b'"content":"a"' in held.partition(b": working")[0]


def test_no_comments_when_there_is_no_silence() -> None:
    with serve_script({"turns": [{"pieces": ["hi"]}]}, settings=_QUIET) as server:
        text = httpx.post(f"{server.url}/v1/chat/completions", json=_body(stream=True)).text
    assert "\n: " not in text
    assert not text.startswith(":")


def test_health_and_models_answer_while_the_engine_is_stuck() -> None:
    gate = threading.Event()
    with (
        serve_script({"turns": [{"pieces": ["hi"], "prefill_block_s": 1}]}, gate=gate) as server,
        closing(_send(server, _body(stream=True))) as connection,
    ):
        wait_for(lambda: server.worker.busy)
        health = httpx.get(f"{server.url}/health").json()
        models = httpx.get(f"{server.url}/v1/models?beta=true")
        gate.set()
        _read_until(connection, b"[DONE]")
    assert health["status"] == "ok"
    assert health["busy"] is True
    assert models.status_code == 200


# --- clients that leave ------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_in_decode_stops_it_within_a_token(stream: bool) -> None:
    script = {"turns": [{"pieces": ["a"] * 2000, "piece_delay_s": 0.01}, {"pieces": ["next"]}]}
    with serve_script(script) as server:
        connection = _send(server, _body(stream=stream))
        if stream:
            _read_until(connection, b'"content":"a"')
        else:
            wait_for(lambda: any(entry["call"] == "submit" for entry in server.journal))
        connection.close()
        server.wait_idle()
        steps = sum(entry["call"] == "submit" for entry in server.journal)
        answer = _ask(server, _body())
    assert steps < 1000
    assert _content(answer) == "next"
    assert server.log.count("client left") == 1
    assert "cancelled during decode" in server.log


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_in_prefill_stops_at_the_next_step_and_keeps_the_prefix(stream: bool) -> None:
    script = {
        "prefill_chunk": 10,
        "turns": [{"pieces": ["never"], "prefill_s_per_1000_tokens": 5}, {"pieces": ["next"]}],
    }
    body = _body("x" * 1000, stream=stream)
    with serve_script(script) as server:
        connection = _send(server, body)
        wait_for(lambda: "prefill chunk" in server.log)
        connection.close()
        server.wait_idle()
        answer = _ask(server, body | {"stream": False})
    assert _content(answer) == "next"
    assert "cancelled during prefill" in server.log
    assert 0 < answer["usage"]["prompt_tokens_details"]["cached_tokens"] < 1000


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_the_queue_drops_the_job(stream: bool) -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a"], "prefill_block_s": 1}, {"pieces": ["next"]}]}
    with (
        serve_script(script, gate=gate) as server,
        closing(_send(server, _body("first", stream=True))) as first,
    ):
        wait_for(lambda: server.worker.busy)
        second = _send(server, _body("second", stream=stream))
        wait_for(lambda: server.worker.queued == 1)
        second.close()
        wait_for(lambda: server.worker.queued == 0)
        gate.set()
        _read_until(first, b"[DONE]")
        assert _content(_ask(server, _body("third"))) == "next"
    assert server.log.count("client left") == 1
    assert "cancelled" not in server.log


def test_jobs_are_served_in_the_order_they_came() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": [str(n)], "prefill_block_s": 1} for n in range(4)]}
    with serve_script(script, gate=gate) as server, ExitStack() as stack:
        connections = []
        for number in range(4):
            connections.append(stack.enter_context(closing(_send(server, _body(stream=True)))))
            wait_for(lambda n=number: server.worker.busy and server.worker.queued == n)  # type: ignore[misc]
        gate.set()
        answers = [_read_until(connection, b"[DONE]") for connection in connections]
    assert [b'"content":"%d"' % n in answer for n, answer in enumerate(answers)] == [True] * 4


def test_a_client_that_stops_reading_is_given_up() -> None:
    timing = dataclasses.replace(QUICK, write_timeout=0.2)
    script = {"turns": [{"pieces": [{"text": "x" * 4000}] * 3000}, {"pieces": ["next"]}]}
    with serve_script(script, settings=ServerSettings(timing=timing), context=40_000_000) as server:
        connection = _send(server, _body(stream=True))
        server.wait_idle(20)
        assert _content(_ask(server, _body())) == "next"
        connection.close()
    assert server.log.count("client left") == 1


# --- characters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "content"),
    [
        ([{"hex": "F09F"}, {"hex": "9AA9"}, "!"], "\U0001f6a9!"),
        ([{"hex": "E4"}, {"hex": "BDA0"}], "你"),
        (["a", {"hex": "FF"}, "b"], "a\ufffdb"),
        (["a", {"hex": "E4BD"}], "a\ufffd"),
    ],
)
@pytest.mark.parametrize("thinking", [True, False])
def test_characters_split_over_tokens(pieces: list[Any], content: str, thinking: bool) -> None:
    field = "reasoning_content" if thinking else "content"
    with serve_script({"turns": [{"pieces": pieces}]}) as server:
        text = httpx.post(
            f"{server.url}/v1/chat/completions", json=_body(stream=True, thinking=thinking)
        ).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get(field, "") for event in events) == content


# --- the end -----------------------------------------------------------------------------------------


def test_a_stop_lets_a_running_stream_finish_and_refuses_new_requests() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a", {"text": "b", "delay_s": 1}]}]}
    with (
        serve_script(script, gate=gate) as server,
        closing(_send(server, _body(stream=True))) as connection,
    ):
        _read_until(connection, b'"content":"a"')
        server.stop()
        wait_for(lambda: server.worker.stopping)
        refused = httpx.post(f"{server.url}/v1/chat/completions", json=_body())
        gate.set()
        assert b'"finish_reason":"stop"' in _read_until(connection, b"[DONE]")
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_finish_in_time_is_cut_with_a_clean_error(stream: bool) -> None:
    settings = ServerSettings(timing=dataclasses.replace(QUICK, shutdown_grace=0.1))
    script = {"turns": [{"pieces": ["a"] * 100_000, "piece_delay_s": 0.01}]}
    replies: list[str] = []
    with serve_script(script, settings=settings) as server:

        def client() -> None:
            replies.append(httpx.post(f"{server.url}/v1/chat/completions", json=_body(stream=stream)).text)

        threads = [threading.Thread(target=client) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.worker.busy and server.worker.queued == 1)
        server.stop()
        for thread in threads:
            thread.join(10)
    assert len(replies) == 2
    assert all("the server is stopping" in reply for reply in replies)
    if stream:
        assert all("event: error\ndata: {" in reply for reply in replies)


def test_a_second_request_to_stop_cuts_at_once() -> None:
    script = {"turns": [{"pieces": ["a"] * 100_000, "piece_delay_s": 0.01}]}
    timing = Timing(shutdown_grace=600)
    with serve_script(script, settings=ServerSettings(timing=timing)) as server:
        connection = _send(server, _body(stream=True))
        _read_until(connection, b'"content":"a"')
        server.stop()
        server.stop()
        _read_until(connection, b"the server is stopping")
        connection.close()


def test_a_connection_that_hangs_does_not_hold_up_the_end() -> None:
    """An upload that never ends, and an idle connection that nobody closes."""
    with serve_script({"turns": [{"pieces": ["a"]}]}) as server:
        idle = socket.create_connection(server.address)
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        _read_until(idle, b"}")
        hanging = socket.create_connection(server.address)
        hanging.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        wait_for(lambda: server.requests_in_flight == 1)
        server.stop()
    idle.close()
    hanging.close()
    assert "error" not in server.log
