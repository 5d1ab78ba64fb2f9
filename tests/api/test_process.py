"""`ds4 serve` as a user runs it: start lines, signals, exit codes, a quiet stderr."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.api_server import wait_for
from tests.support.serve_process import ROOT, running, serve_arguments

_BODY = {"model": "deepseek-chat", "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_serves_and_ends_in_good_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = {"turns": [{"pieces": ["a"] * 20, "piece_delay_s": 0.02}], "engine": {"name": "Play"}}
    with running(serve_arguments(tmp_path, script, "--port", "0", "--ctx", "1000")) as process:
        model = httpx.get(f"{process.url}/v1/models/deepseek-v4-flash").json()
        assert (model["name"], model["context_length"]) == ("Play", 1000)
        with httpx.stream(
            "POST", f"{process.url}/v1/chat/completions", json=_BODY | {"stream": True}
        ) as response:
            parts = response.iter_text()
            text = next(parts)
            process.popen.send_signal(number)
            text += "".join(parts)
        assert text.endswith("data: [DONE]\n\n")
        assert process.end(number) == 0
    assert "thinking on, effort high" in process.stderr
    assert "context buffers" in process.stderr
    assert "warning" not in process.stderr.lower()
    assert "Traceback" not in process.stderr
    assert "Error" not in process.stderr
    assert all("ds4-server: " in line for line in process.lines)


def test_off_a_terminal_the_log_is_json_and_a_request_is_summed_up_in_one_line(tmp_path: Path) -> None:
    arguments = serve_arguments(
        tmp_path, {"turns": [{"pieces": ["a", "b"]}]}, "--port", "0", "--log-format", "auto"
    )
    with running(arguments, r'"url": "(http://[^"]+)"') as process:
        reply = httpx.post(f"{process.url}/v1/chat/completions", json=_BODY, headers={"x-request-id": "mine"})
        httpx.post(f"{process.url}/v1/chat/completions", content=b"{", headers={"x-request-id": "bad"})
        assert process.end(signal.SIGTERM) == 0
    events = [json.loads(line) for line in process.lines]
    (summary,) = [event for event in events if "finish" in event]
    assert summary["request"] == "mine"
    assert (summary["endpoint"], summary["finish"], summary["source"]) == ("chat", "stop", "miss")
    assert summary["prompt_tokens"] == reply.json()["usage"]["prompt_tokens"]
    assert (summary["reused_tokens"], summary["generated_tokens"]) == (0, 2)
    assert summary["decode_seconds"] <= summary["seconds"]
    (refused,) = [event for event in events if event.get("status")]
    assert (refused["level"], refused["status"], refused["request"]) == ("warning", 400, "bad")


def test_a_third_signal_ends_it_whatever_the_engine_does(tmp_path: Path) -> None:
    script = {"turns": [{"pieces": ["a"], "prefill_block_s": 600}]}
    with running(serve_arguments(tmp_path, script, "--port", "0")) as process:
        with httpx.stream(
            "POST", f"{process.url}/v1/chat/completions", json=_BODY | {"stream": True}
        ) as response:
            process.popen.send_signal(signal.SIGINT)
            process.read_until("stopping: ")
            process.popen.send_signal(signal.SIGINT)
            process.read_until("stopping now: ")
            assert "the server is stopping" in "".join(response.iter_text())
        assert process.popen.poll() is None
        assert process.end(signal.SIGINT) == -signal.SIGINT
    assert "Traceback" not in process.stderr


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = serve_arguments(tmp_path, {"turns": [{"pieces": ["a"]}]}, "--port", str(port))
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in done.stderr


def test_a_bad_script_is_one_line_and_an_unknown_flag_is_a_usage_error(tmp_path: Path) -> None:
    for arguments, code in (
        (serve_arguments(tmp_path, {"turns": 5}, "--port", "0"), 2),
        (serve_arguments(tmp_path, {"turns": []}, "--prot", "0"), 2),
        (serve_arguments(tmp_path, {"turns": []}, "--nothink", "--think"), 2),
    ):
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_open_to_the_network_without_keys_warns(tmp_path: Path) -> None:
    arguments = serve_arguments(
        tmp_path, {"turns": [{"pieces": ["a"]}]}, "--port", "0", "--host", "0.0.0.0", "--nothink"
    )
    with running(arguments) as process:
        assert process.end(signal.SIGTERM) == 0
    assert "no API keys" in process.stderr
    assert "thinking off" in process.stderr


def test_a_log_that_nobody_reads_does_not_stop_the_server(tmp_path: Path) -> None:
    with running(serve_arguments(tmp_path, {"turns": [{"pieces": ["a"]}]}, "--port", "0")) as process:
        assert process.popen.stderr is not None
        process.popen.stderr.close()
        reply = httpx.post(f"{process.url}/v1/chat/completions", json=_BODY)
        assert reply.status_code == 200


def test_a_trace_is_private_made_anew_and_refused_before_the_model_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("old")
    arguments = serve_arguments(tmp_path, {"turns": [{"pieces": ["said"]}]}, "--port", "0")
    with running([*arguments, "--trace", str(path)]) as process:
        assert path.read_text() == ""
        assert path.stat().st_mode & 0o777 == 0o600
        assert httpx.post(f"{process.url}/v1/chat/completions", json=_BODY).status_code == 200
        assert process.end(signal.SIGTERM) == 0
    assert "\nsaid\n--- parsed ---\n" in path.read_text()
    assert process.stderr.count("gets every prompt and answer in full") == 1
    refused = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"DS4_TRACE": str(tmp_path)},
    )  # fmt: skip
    assert (refused.returncode, refused.stderr) == (1, f"ds4: {tmp_path}: Is a directory\n")


def test_many_in_work_and_in_line_are_cut_with_an_answer(tmp_path: Path) -> None:
    """The second signal cuts: nobody is left without a word, and nothing alarming is said."""
    script = {"turns": [{"pieces": ["a"] * 20_000, "piece_delay_s": 0.002}]}
    more = ("--port", "0", "--ctx", "30000", "--sessions", "3")
    with running(serve_arguments(tmp_path, script, *more)) as process, ExitStack() as stack:
        url = f"{process.url}/v1/chat/completions"
        streams = [
            stack.enter_context(httpx.stream("POST", url, json=_BODY | {"stream": True}, timeout=30))
            for _ in range(6)
        ]
        wait_for(lambda: httpx.get(f"{process.url}/health").json()["running"] == 3)
        process.popen.send_signal(signal.SIGTERM)
        process.read_until("stopping: finishing")
        assert process.end(signal.SIGTERM) == 0
        answers = [stream.read().decode() for stream in streams]
    assert all("the server is stopping" in answer for answer in answers)
    assert process.lines[-1].endswith("stopped\n")
    assert "Traceback" not in process.stderr
    assert " error" not in process.stderr
