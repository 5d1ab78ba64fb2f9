"""Several requests at once over real connections: side by side, in line, turned away, cut off."""

from __future__ import annotations

import dataclasses
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from apps.serve.settings import DiskSettings, ServerSettings
from shared.kv.store.policy import StoreSettings
from tests.support.api_server import QUICK, RunningServer, serve_script, wait_for
from tests.support.raw_http import chat_body, read_until, send_chat

_ENDLESS = {"match": "endless", "pieces": ["a"] * 20_000, "piece_delay_s": 0.002}
_BODIES = {
    "/v1/chat/completions": chat_body("more"),
    "/v1/completions": {"prompt": "more"},
    "/v1/responses": {"input": "more"},
    "/v1/messages": {"messages": [{"role": "user", "content": "more"}], "max_tokens": 10},
}


def _settings(sessions: int, max_queue: int = 64, **fields: Any) -> ServerSettings:
    return ServerSettings(sessions=sessions, max_queue=max_queue, timing=QUICK, **fields)


@contextmanager
def _full(max_queue: int) -> Iterator[tuple[RunningServer, list[socket.socket]]]:
    """A server with two endless answers in work and `max_queue` requests that wait."""
    script = {"turns": [_ENDLESS, _ENDLESS, {"pieces": ["next"]}]}
    with serve_script(script, settings=_settings(2, max_queue)) as server, ExitStack() as stack:
        connections = []
        for number in range(2 + max_queue):
            body = chat_body("endless" if number < 2 else "wait", stream=True)
            connections.append(stack.enter_context(closing(send_chat(server, body))))
            wait_for(lambda n=number: server.worker.running + server.worker.queued == n + 1)  # type: ignore[misc]
        yield server, connections


def test_answers_come_side_by_side() -> None:
    """Neither ends, and both flow."""
    with _full(0) as (_, connections):
        for _ in range(3):
            for connection in connections:
                read_until(connection, b'"content":"a"', 3)


def test_the_journal_has_their_tokens_in_turn() -> None:
    turns = [{"match": name, "pieces": [name[0]] * 400} for name in ("one", "two", "six")]
    with serve_script({"turns": turns}, settings=_settings(3)) as server, ExitStack() as stack:
        names = ("one", "two", "six")
        streams = [stack.enter_context(closing(send_chat(server, chat_body(n, stream=True)))) for n in names]
        answers = [read_until(stream, b"[DONE]") for stream in streams]
        server.wait_idle()
        picks = [entry["turn"] for entry in server.journal if entry["call"] == "pick"]
    for name, answer in zip(names, answers, strict=True):
        assert answer.count(b'"content":"%s"' % name[:1].encode()) == 400
    both = [picks.index(turn) for turn in range(3)]
    shared = picks[max(both) : max(both) + 300]
    assert max(shared.count(turn) for turn in range(3)) - min(shared.count(turn) for turn in range(3)) <= 1


@pytest.mark.parametrize("path", _BODIES)
def test_when_all_places_are_taken_the_next_is_told_when_to_come_back(path: str) -> None:
    with _full(2) as (server, connections):
        reply = httpx.post(f"{server.url}{path}", json=_BODIES[path] | {"stream": True})
        connections[0].close()
        wait_for(lambda: server.worker.refusal() is None)
    error = reply.json()["error"]
    if path == "/v1/messages":
        assert reply.status_code == 529
        assert (reply.json()["type"], error["type"]) == ("error", "overloaded_error")
    else:
        assert reply.status_code == 429
        assert (error["type"], error["code"]) == ("rate_limit_error", "server_overloaded")
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert f"{path} {reply.status_code} too many requests wait" in server.log


@pytest.mark.parametrize(
    ("path", "sign"), [("/v1/chat/completions", b": prefill"), ("/v1/messages", b"event: ping")]
)
def test_who_waits_hears_that_the_server_lives(path: str, sign: bytes) -> None:
    script = {"turns": [_ENDLESS]}
    with serve_script(script, settings=_settings(1)) as server, ExitStack() as stack:
        stack.enter_context(closing(send_chat(server, chat_body("endless", stream=True))))
        wait_for(lambda: server.worker.busy)
        waits = stack.enter_context(closing(send_chat(server, _BODIES[path] | {"stream": True}, path)))
        read_until(waits, sign, 3)
        assert server.worker.queued == 1


def test_one_after_the_other_is_never_turned_away() -> None:
    """Its place is free before a client hears of the end."""
    with (
        serve_script({"turns": [{"pieces": ["a"]}]}, settings=_settings(1, 0)) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        for _ in range(100):
            assert client.post("/v1/chat/completions", json=chat_body()).status_code == 200


def test_a_client_that_leaves_does_not_disturb_the_others() -> None:
    turns = [{"match": "stay", "pieces": list("0123456789" * 20), "piece_delay_s": 0.002}, _ENDLESS]
    with serve_script({"turns": turns}, settings=_settings(2)) as server:
        with closing(send_chat(server, chat_body("stay", stream=True))) as stays:
            for _ in range(5):
                leaves = send_chat(server, chat_body("endless", stream=True))
                read_until(leaves, b'"content"')
                leaves.close()
            answer = read_until(stays, b"[DONE]").decode()
        server.wait_idle()
    assert "".join(re.findall('"content":"(.)"', answer)) == "0123456789" * 20
    assert server.log.count("cancelled during decode") == 5


def test_log_lines_tell_turns_apart() -> None:
    with _full(0) as (server, _):
        wait_for(lambda: server.log.count(" decoding ") >= 4)
    lines = [line for line in server.log.splitlines() if " decoding " in line]
    assert {re.search(r"slot=(\d) req=(req_[0-9a-f]{24})$", line).group(1) for line in lines} == {"0", "1"}  # type: ignore[union-attr]


class TestStop:
    def test_those_in_work_and_in_line_finish_and_what_is_live_is_saved(self, tmp_path: Path) -> None:
        gate = threading.Event()
        script = {"turns": [{"pieces": ["a", {"text": "b", "delay_s": 1}]}]}
        disk = DiskSettings(tmp_path, StoreSettings(min_tokens=64, durable=False))
        bodies = [chat_body(f"{number} " + "word " * 50, stream=True) for number in range(5)]
        with (
            serve_script(script, settings=_settings(2, disk=disk), gate=gate) as server,
            ExitStack() as stack,
        ):
            connections = [stack.enter_context(closing(send_chat(server, body))) for body in bodies]
            wait_for(lambda: server.worker.running == 2 and server.worker.queued == 3)
            server.stop()
            wait_for(lambda: server.worker.stopping)
            assert httpx.post(f"{server.url}/v1/chat/completions", json=chat_body()).status_code == 503
            gate.set()
            for connection in connections:
                assert b'"finish_reason":"stop"' in read_until(connection, b"[DONE]")
        assert server.log.count("reason=shutdown") == 2
        assert "error" not in server.log

    def test_what_does_not_finish_in_time_is_cut_all_at_once(self) -> None:
        settings = dataclasses.replace(_settings(2), timing=dataclasses.replace(QUICK, shutdown_grace=0.1))
        bodies = [chat_body("endless", stream=number % 2 == 0) for number in range(6)]
        with (
            serve_script({"turns": [_ENDLESS]}, settings=settings) as server,
            ExitStack() as stack,
        ):
            connections = [stack.enter_context(closing(send_chat(server, body))) for body in bodies]
            wait_for(lambda: server.worker.running == 2 and server.worker.queued == 4)
            server.stop()
            for connection in connections:
                read_until(connection, b"the server is stopping")
        assert " error" not in server.log
