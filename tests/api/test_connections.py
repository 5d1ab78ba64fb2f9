"""Manners on the wire: keepalive, clients that leave in every phase, whole characters."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from apps.serve.settings import ServerSettings
from tests.support.api_server import QUICK, serve_script, wait_for
from tests.support.raw_http import ask_chat, chat_body, content_of, read_until, send_chat

_QUIET = ServerSettings(timing=dataclasses.replace(QUICK, keepalive_waiting=600, keepalive_decode=600))


# --- keepalive -------------------------------------------------------------------------------------


def test_headers_come_at_once_and_comments_keep_a_blocked_prefill_alive() -> None:
    gate = threading.Event()
    with (
        serve_script({"turns": [{"pieces": ["hi"], "prefill_block_s": 1}]}, gate=gate) as server,
        closing(send_chat(server, chat_body(stream=True))) as connection,
    ):
        waited = read_until(connection, b": prefill\n\n", 3)
        gate.set()
        rest = read_until(connection, b"[DONE]")
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
        closing(send_chat(server, chat_body(stream=True))) as first,
    ):
        wait_for(lambda: server.worker.busy)
        with closing(send_chat(server, chat_body(stream=True))) as second:
            waited = read_until(second, b": prefill\n\n", 2)
            assert server.worker.queued == 1
            gate.set()
            read_until(second, b"[DONE]")
        read_until(first, b"[DONE]")
    assert waited.startswith(b"HTTP/1.1 200")
    assert b"data:" not in waited


def test_an_answer_that_is_held_back_is_kept_alive() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a", {"text": "b", "delay_s": 1}]}]}
    with (
        serve_script(script, gate=gate) as server,
        closing(send_chat(server, chat_body(stream=True))) as connection,
    ):
        held = read_until(connection, b": working\n\n", 2)
        gate.set()
        read_until(connection, b'"content":"b"')
    assert b'"content":"a"' in held.partition(b": working")[0]


def test_no_comments_when_there_is_no_silence() -> None:
    with serve_script({"turns": [{"pieces": ["hi"]}]}, settings=_QUIET) as server:
        text = httpx.post(f"{server.url}/v1/chat/completions", json=chat_body(stream=True)).text
    assert "\n: " not in text
    assert not text.startswith(":")


def test_health_and_models_answer_while_the_engine_is_stuck() -> None:
    gate = threading.Event()
    with (
        serve_script({"turns": [{"pieces": ["hi"], "prefill_block_s": 1}]}, gate=gate) as server,
        closing(send_chat(server, chat_body(stream=True))) as connection,
    ):
        wait_for(lambda: server.worker.busy)
        health = httpx.get(f"{server.url}/health").json()
        models = httpx.get(f"{server.url}/v1/models?beta=true")
        gate.set()
        read_until(connection, b"[DONE]")
    assert health["status"] == "ok"
    assert health["busy"] is True
    assert models.status_code == 200


# --- clients that leave ------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_in_decode_stops_it_within_a_token(stream: bool) -> None:
    script = {"turns": [{"pieces": ["a"] * 2000, "piece_delay_s": 0.01}, {"pieces": ["next"]}]}
    with serve_script(script) as server:
        connection = send_chat(server, chat_body(stream=stream))
        if stream:
            read_until(connection, b'"content":"a"')
        else:
            wait_for(lambda: any(entry["call"] == "submit" for entry in server.journal))
        connection.close()
        server.wait_idle()
        steps = sum(entry["call"] == "submit" for entry in server.journal)
        answer = ask_chat(server, chat_body())
    assert steps < 1000
    assert content_of(answer) == "next"
    assert server.log.count("client left") == 1
    assert "cancelled during decode" in server.log


def test_a_client_that_is_killed_in_the_middle_of_a_stream_is_one_line() -> None:
    reader = (
        "import sys, urllib.request as web\n"
        "for line in web.urlopen(web.Request(sys.argv[1], data=sys.argv[2].encode())):\n"
        "    print(line, flush=True)"
    )
    script = {"turns": [{"pieces": ["a"] * 2000, "piece_delay_s": 0.01}, {"pieces": ["next"]}]}
    with serve_script(script) as server:
        body = json.dumps(chat_body(stream=True))
        command = [sys.executable, "-c", reader, f"{server.url}/v1/chat/completions", body]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert any(b'"content":"a"' in line for line in client.stdout)
            client.kill()
        server.wait_idle()
        assert content_of(ask_chat(server, chat_body())) == "next"
    assert server.log.count("client left") == 1
    assert "error" not in server.log


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_in_prefill_stops_at_the_next_step_and_keeps_the_prefix(stream: bool) -> None:
    script = {
        "prefill_chunk": 10,
        "turns": [{"pieces": ["never"], "prefill_s_per_1000_tokens": 5}, {"pieces": ["next"]}],
    }
    body = chat_body("x" * 1000, stream=stream)
    with serve_script(script) as server:
        connection = send_chat(server, body)
        wait_for(lambda: "prefill chunk" in server.log)
        connection.close()
        server.wait_idle()
        answer = ask_chat(server, body | {"stream": False})
    assert content_of(answer) == "next"
    assert "cancelled during prefill" in server.log
    assert 0 < answer["usage"]["prompt_tokens_details"]["cached_tokens"] < 1000


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_the_queue_drops_the_job(stream: bool) -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a"], "prefill_block_s": 1}, {"pieces": ["next"]}]}
    with (
        serve_script(script, gate=gate) as server,
        closing(send_chat(server, chat_body("first", stream=True))) as first,
    ):
        wait_for(lambda: server.worker.busy)
        second = send_chat(server, chat_body("second", stream=stream))
        wait_for(lambda: server.worker.queued == 1)
        second.close()
        wait_for(lambda: server.worker.queued == 0)
        gate.set()
        read_until(first, b"[DONE]")
        assert content_of(ask_chat(server, chat_body("third"))) == "next"
    assert server.log.count("client left") == 1
    assert "cancelled" not in server.log


def test_jobs_are_served_in_the_order_they_came() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": [str(n)], "prefill_block_s": 1} for n in range(4)]}
    with serve_script(script, gate=gate) as server, ExitStack() as stack:
        connections = []
        for number in range(4):
            connections.append(stack.enter_context(closing(send_chat(server, chat_body(stream=True)))))
            wait_for(lambda n=number: server.worker.busy and server.worker.queued == n)  # type: ignore[misc]
        gate.set()
        answers = [read_until(connection, b"[DONE]") for connection in connections]
    assert [b'"content":"%d"' % n in answer for n, answer in enumerate(answers)] == [True] * 4


def test_a_client_that_stops_reading_is_given_up() -> None:
    timing = dataclasses.replace(QUICK, write_timeout=0.2)
    script = {"turns": [{"pieces": [{"text": "x" * 4000}] * 3000}, {"pieces": ["next"]}]}
    with serve_script(script, settings=ServerSettings(timing=timing), context=40_000_000) as server:
        connection = send_chat(server, chat_body(stream=True))
        wait_for(lambda: "client left" in server.log, 60)
        assert content_of(ask_chat(server, chat_body())) == "next"
        connection.close()
    assert server.log.count("client left") == 1


def test_a_connection_whose_client_never_reads_is_dropped() -> None:
    """Closing it in order would wait for the client for ever."""
    timing = dataclasses.replace(QUICK, write_timeout=0.2, dead_peer=1.0, idle_connection=0.1)
    script = {"turns": [{"pieces": [{"text": "x" * 4000}] * 2000}]}
    with serve_script(script, settings=ServerSettings(timing=timing), context=20_000_000) as server:
        with closing(send_chat(server, chat_body(stream=True))):
            wait_for(lambda: "client left" in server.log, 20)
            wait_for(lambda: server.connections == 0, 20)
        assert "error" not in server.log


def test_an_answer_that_is_held_back_while_tokens_come_is_kept_alive() -> None:
    """A call in open thinking: the model goes on, the client gets nothing yet."""
    script = {"turns": [{"pieces": ["<", "｜DSML｜", *"tool_calls>", *[" "] * 60], "piece_delay_s": 0.01}]}
    tool = {"type": "function", "function": {"name": "bash", "parameters": {}}}
    body = chat_body(stream=True, thinking=True, tools=[tool])
    with serve_script(script) as server, closing(send_chat(server, body)) as connection:
        assert b": working\n\n" in read_until(connection, b"[DONE]")


def test_long_arguments_flow_as_they_are_generated() -> None:
    """Name first, then many pieces: none of them longer than a few steps of the model."""
    value = "The quick brown fox.\n" * 100
    head = ["<", "｜DSML｜", "tool_calls>\n<", "｜DSML｜", 'invoke name="write">\n<', "｜DSML｜"]
    tail = ["</", "｜DSML｜", "parameter>\n</", "｜DSML｜", "invoke>\n</", "｜DSML｜", "tool_calls>"]
    steps = [{"tokens": list(value[at : at + 20])} for at in range(0, len(value), 20)]
    pieces = [*head, 'parameter name="content" string="true">', *steps, *tail]
    tool = {"type": "function", "function": {"name": "write", "parameters": {}}}
    with serve_script({"turns": [{"pieces": pieces}]}) as server:
        text = httpx.post(f"{server.url}/v1/chat/completions", json=chat_body(stream=True, tools=[tool])).text
    deltas = [
        json.loads(line[6:])["choices"][0]["delta"] for line in text.splitlines() if 'tool_calls":' in line
    ]
    functions = [part["function"] for delta in deltas for part in delta["tool_calls"]]
    assert functions[0] == {"name": "write", "arguments": ""}
    assert json.loads("".join(function["arguments"] for function in functions)) == {"content": value}
    assert max(len(function["arguments"]) for function in functions) <= 3 * 20


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
            f"{server.url}/v1/chat/completions", json=chat_body(stream=True, thinking=thinking)
        ).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get(field, "") for event in events) == content


def test_characters_split_over_tokens_in_arguments_and_before_a_stop_string() -> None:
    dsml = "｜DSML｜"
    flag = [{"hex": "F09F"}, {"hex": "9AA9"}]
    head = ["<", dsml, "tool_calls><", dsml, 'invoke name="f"><', dsml, 'parameter name="a" string="true">']
    tail = ["</", dsml, "parameter></", dsml, "invoke></", dsml, "tool_calls>"]
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    script = {"turns": [{"pieces": [*head, *flag, *tail]}, {"pieces": ["a", *flag, {"hex": "E4BD"}, "XYZ"]}]}
    with serve_script(script) as server:
        message = ask_chat(server, chat_body(tools=[tool]))["choices"][0]["message"]
        stopped = ask_chat(server, chat_body(stop=["XY"]))["choices"][0]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": "\U0001f6a9"}
    assert (stopped["message"]["content"], stopped["finish_reason"]) == ("a\U0001f6a9\ufffd", "stop")
