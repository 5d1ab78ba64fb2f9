"""`GET /metrics` on a running server: during a generation too, with what was reused, skipped and stored."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx

from apps.serve.settings import DiskSettings, ServerSettings
from shared.kv.store.policy import StoreSettings
from tests.support.api_server import QUICK, RunningServer, serve_script, wait_for
from tests.support.gate import Gate
from tests.support.raw_http import ask_chat, chat_body, read_until, send_chat


def _metrics(server: RunningServer) -> dict[str, float]:
    reply = httpx.get(f"{server.url}/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in reply.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_it_answers_during_a_generation_and_tells_what_waits() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a", "b"], "piece_delay_s": 5}] * 3}
    with serve_script(script, gate=gate) as server:
        running = send_chat(server, chat_body(stream=True))
        read_until(running, b"role")
        waiting = send_chat(server, chat_body(stream=True))
        wait_for(lambda: server.worker.queued == 1)
        seen = _metrics(server)
        gate.set()
        read_until(running, b"[DONE]")
        read_until(waiting, b"[DONE]")
        running.close()
        waiting.close()
        server.wait_idle()
        after = _metrics(server)
    assert (seen["ds4_turns_running"], seen["ds4_queue_depth"], seen["ds4_slots"]) == (1, 1, 1)
    assert seen["ds4_requests_in_flight"] == 3
    assert (after["ds4_turns_running"], after["ds4_queue_depth"]) == (0, 0)
    assert after['ds4_turns_total{finish="stop",kind="chat"}'] == 2
    assert after['ds4_requests_total{endpoint="/v1/chat/completions",status="200"}'] == 2


def test_reuse_tokens_and_skipped_fields_are_counted(tmp_path: Path) -> None:
    disk = DiskSettings(tmp_path, StoreSettings(min_tokens=8, trim_tokens=0, align_tokens=0))
    with serve_script(
        {"turns": [{"pieces": ["ok"]}] * 2}, settings=ServerSettings(disk=disk, timing=QUICK)
    ) as server:
        first = ask_chat(server, chat_body(user="me", metadata={"a": 1}))
        usage = ask_chat(server, chat_body(user="me"))["usage"]
        httpx.post(f"{server.url}/v1/tokenize", json={"content": "a", "add_special": True})
        httpx.post(f"{server.url}/v1/chat/completions", json={"messages": 5, "never": 1})
        server.wait_idle()
        assert server.worker.store is not None
        server.worker.store.flush()
        seen = _metrics(server)
        sizes = [path.stat().st_size for path in tmp_path.glob("*.kv")]
    reused = usage["prompt_tokens_details"]["cached_tokens"]
    assert reused > 0
    by_source = {name: value for name, value in seen.items() if name.startswith("ds4_reused_tokens_total")}
    assert sum(by_source.values()) == reused
    computed = sum(value for name, value in seen.items() if name.startswith("ds4_prefilled_tokens_total"))
    assert computed == first["usage"]["prompt_tokens"] + usage["prompt_tokens"] - reused
    assert seen['ds4_generated_tokens_total{kind="chat"}'] == 4
    ignored = {name: value for name, value in seen.items() if name.startswith("ds4_ignored")}
    chat = 'ds4_ignored_fields_total{endpoint="/v1/chat/completions",field='
    assert ignored == {
        f'{chat}"user"}}': 2,
        f'{chat}"metadata"}}': 1,
        'ds4_ignored_fields_total{endpoint="/v1/tokenize",field="add_special"}': 1,
    }
    assert seen["ds4_store_written_bytes_total"] == sum(sizes) > 0


def test_a_turn_whose_client_left_is_counted_as_cancelled() -> None:
    gate = Gate()
    with serve_script({"turns": [{"pieces": ["a"] * 50, "piece_delay_s": 5}]}, gate=gate) as server:
        connection = send_chat(server, chat_body(stream=True))
        wait_for(gate.reached.is_set)  # the first token is being chosen
        connection.close()
        wait_for(lambda: server.requests_in_flight == 0)
        gate.set()
        server.wait_idle()
        seen: dict[str, Any] = _metrics(server)
    assert seen['ds4_turns_total{finish="cancelled",kind="chat"}'] == 1
    # Tokens without their time would make rates of them too high.
    assert seen['ds4_generated_tokens_total{kind="chat"}'] > 0
    assert seen["ds4_decode_seconds_count"] == 1
    assert 'ds4_turns_total{finish="stop",kind="chat"}' not in seen


def test_an_attempt_that_came_to_nothing_is_counted_with_its_time() -> None:
    broken = "\n\n<｜DSML｜tool_calls>\n</｜DSML｜tool_calls>"
    tool = {"type": "function", "function": {"name": "ls"}}
    with serve_script({"turns": [{"pieces": [broken]}, {"pieces": ["fine"]}]}) as server:
        usage = ask_chat(server, chat_body(tools=[tool]))["usage"]
        server.wait_idle()
        seen = _metrics(server)
    assert usage["completion_tokens"] == len("fine")
    assert seen['ds4_generated_tokens_total{kind="chat"}'] == len("fine") + len(broken.encode())
    assert seen["ds4_decode_seconds_count"] == 2
    assert seen['ds4_turns_total{finish="stop",kind="chat"}'] == 1
