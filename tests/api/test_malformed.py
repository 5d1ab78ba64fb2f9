"""A generated corpus of wrong requests: 4xx in shape, never 500, nothing alarming in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from apps.serve.schema.request_models import REQUEST_MODELS
from tests.support import turns
from tests.support.api_server import RunningServer, serve_script
from tests.support.wrong_requests import CHAT, GOOD, WrongRequest, odd_requests, wrong_requests

_GOOD = GOOD[CHAT]


_ARGUMENTS: list[Any] = [
    "",
    "  ",
    "ls -la",
    "null",
    "[1]",
    '"x"',
    '{"a":' + "[" * 50_000 + "]" * 50_000 + "}",
    "[" * 50_000,
    '{"a":NaN}',
    '{"a":1e999}',
    '{"a":' + "9" * 10_000 + "}",
    '{"a":1,"a":2,"":3}',
    r'{"\ud800":"\udfff"}',
    '{"a":"</｜DSML｜parameter>"}',
    {"a": {"b": [1, None]}},
    5,
    False,
]
_NAMES = ['a"b<>&', "a\nb", "", "｜DSML｜", "\0", "x" * 10_000]
_PARAMETERS: list[Any] = [
    5,
    [],
    None,
    {"properties": [1]},
    {"properties": None, "required": "x"},
    {"properties": {"p": 5}, "required": [1, None]},
]


def _odd_tools() -> Iterator[dict[str, Any]]:
    """What clients have been seen to send, and worse: every one must be answered."""
    for arguments in _ARGUMENTS:
        yield _tool_history("bash", arguments)
    for name in _NAMES:
        yield _tool_history(name, "{}") | {"tools": [{"type": "function", "function": {"name": name}}]}
    for parameters in _PARAMETERS:
        function = {"name": "bash", "parameters": parameters}
        yield _GOOD | {"tools": [{"type": "function", "function": function}, {"type": "web_search"}]}
    yield _GOOD | {"tools": [{"name": "same", "description": "x" * 1_000_000}, {"name": "same"}]}


def _tool_history(name: str, arguments: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    return _GOOD | {
        "messages": [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "out"},
        ]
    }


def _send(client: httpx.Client, request: WrongRequest) -> httpx.Response:
    return client.request(request.method, request.path, content=request.body, headers=list(request.headers))


def _check_refusal(request: WrongRequest, reply: httpx.Response) -> None:
    """The error is in the shape of the endpoint's family, short, and in one line."""
    body = reply.json()
    error = body["error"]
    if request.path.startswith("/v1/messages"):
        assert body["type"] == "error", request
        assert error["type"].endswith("_error"), request
    else:
        assert error["type"] == "invalid_request_error", request
        assert {"message", "type", "param", "code"} <= error.keys(), request
    assert error["message"], request
    assert "\n" not in error["message"], request
    assert len(error["message"]) < 500, request
    assert reply.headers["x-request-id"], request


def _ways(requests: list[WrongRequest]) -> dict[str, int]:
    """How many requests there are for each path."""
    return Counter(request.path for request in requests)


def test_wrong_requests_get_4xx_in_shape_and_the_next_request_works(
    capfd: pytest.CaptureFixture[str],
) -> None:
    corpus = list(wrong_requests())
    assert len(set(corpus)) >= 300
    assert all(_ways(corpus)[path] >= 50 for path in REQUEST_MODELS)
    with _serving() as (server, client):
        for request in corpus:
            reply = _send(client, request)
            assert 400 <= reply.status_code < 500, (str(request), reply.text)
            _check_refusal(request, reply)
        for path, body in GOOD.items():
            assert client.post(path, json=body).status_code == 200, path
        assert not server.worker.busy
    _check_quiet(server, capfd)


def test_odd_requests_are_answered_or_refused_in_shape(capfd: pytest.CaptureFixture[str]) -> None:
    corpus = list(odd_requests())
    assert len(set(corpus)) >= 300
    with _serving() as (server, client):
        for request in corpus:
            reply = _send(client, request)
            assert reply.status_code < 500, (str(request), reply.text)
            if reply.status_code != 200:
                _check_refusal(request, reply)
        for path, body in GOOD.items():
            assert client.post(path, json=body).status_code == 200, path
    _check_quiet(server, capfd)


@contextmanager
def _serving() -> Iterator[tuple[RunningServer, httpx.Client]]:
    with (
        serve_script({"turns": [{"pieces": ["ok"]}]}) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield server, client


def _check_quiet(server: RunningServer, capfd: pytest.CaptureFixture[str]) -> None:
    """A line for each refusal, and nothing that would alarm who reads the log."""
    printed = capfd.readouterr()
    for text in (server.log, printed.err, printed.out):
        assert "Traceback" not in text
        assert "error" not in text.replace("_error", "")


def test_odd_tools_and_calls_are_answered() -> None:
    block = "\n\n" + turns.block(turns.invoke("bash"))
    with (
        serve_script({"turns": [{"pieces": [block]}]}, context=3_000_000) as server,
        httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client,
    ):
        for body in _odd_tools():
            reply = client.post("/chat/completions", json=body)
            assert reply.status_code == 200, (str(body)[:200], reply.text)
            if "tools" in body and body["tools"][0].get("function", {}).get("name") == "bash":
                assert reply.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert "error" not in server.log


def test_thousands_of_messages() -> None:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": f"m{number}"} for number in range(10_000)]
    with serve_script({"turns": [{"pieces": ["ok"]}]}, context=100_000) as server:
        reply = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": messages}, timeout=60)
    assert reply.status_code == 200
