"""The end of a server: what is in work finishes or is cut with an answer, and nothing holds it up."""

from __future__ import annotations

import dataclasses
import socket
import threading
from contextlib import closing

import httpx
import pytest

from apps.serve.settings import ServerSettings, Timing
from tests.support.api_server import QUICK, serve_script, wait_for
from tests.support.gate import Gate
from tests.support.raw_http import chat_body, read_until, send_chat


def test_a_stop_lets_a_running_stream_finish_and_refuses_new_requests() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a", {"text": "b", "delay_s": 1}]}]}
    with (
        serve_script(script, gate=gate) as server,
        closing(send_chat(server, chat_body(stream=True))) as connection,
    ):
        read_until(connection, b'"content":"a"')
        server.stop()
        wait_for(lambda: server.worker.stopping)
        refused = httpx.post(f"{server.url}/v1/chat/completions", json=chat_body())
        gate.set()
        assert b'"finish_reason":"stop"' in read_until(connection, b"[DONE]")
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_finish_in_time_is_cut_with_a_clean_error(stream: bool) -> None:
    settings = ServerSettings(timing=dataclasses.replace(QUICK, shutdown_grace=0.1))
    script = {"turns": [{"pieces": ["a"] * 100_000, "piece_delay_s": 0.01}]}
    replies: list[str] = []
    with serve_script(script, settings=settings) as server:

        def client() -> None:
            body = chat_body(stream=stream)
            replies.append(httpx.post(f"{server.url}/v1/chat/completions", json=body).text)

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
        connection = send_chat(server, chat_body(stream=True))
        read_until(connection, b'"content":"a"')
        server.stop()
        server.stop()
        read_until(connection, b"the server is stopping")
        connection.close()


def test_who_waits_is_told_of_a_cut_even_while_the_engine_does_not_answer() -> None:
    gate = Gate()
    script = {"turns": [{"pieces": ["a"], "prefill_block_s": 1}]}
    settings = ServerSettings(timing=dataclasses.replace(QUICK, shutdown_grace=600))
    with (
        serve_script(script, gate=gate, settings=settings) as server,
        closing(send_chat(server, chat_body(stream=True))) as connection,
    ):
        wait_for(gate.reached.is_set)
        server.stop()
        server.stop()
        read_until(connection, b"the server is stopping")
        assert server.worker.busy
        gate.set()


def test_an_upload_that_the_end_cuts_gets_an_answer() -> None:
    with serve_script({"turns": [{"pieces": ["a"]}]}) as server:
        connection = socket.create_connection(server.address, timeout=5)
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        wait_for(lambda: server.requests_in_flight == 1)
        server.stop()
        answer = read_until(connection, b"}}")
        connection.close()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"the server is stopping" in answer


def test_a_connection_that_hangs_does_not_hold_up_the_end() -> None:
    """An upload that never ends, and an idle connection that nobody closes."""
    with serve_script({"turns": [{"pieces": ["a"]}]}) as server:
        idle = socket.create_connection(server.address)
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(idle, b"}")
        hanging = socket.create_connection(server.address)
        hanging.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        wait_for(lambda: server.requests_in_flight == 1)
        server.stop()
    idle.close()
    hanging.close()
    assert "error" not in server.log
