"""A generated corpus of wrong and odd bodies for `/v1/responses`: refused in shape or answered, never 500."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.api_server import serve_script
from tests.support.conversations import script

_GOOD: dict[str, Any] = {"model": "deepseek-chat", "input": "hello"}
_USER = {"role": "user", "content": "hello"}
_WRONG: dict[str, list[Any]] = {
    "input": [None, 5, {}, True, [], [5], [None], [[]]],
    "model": [5, [], {}, True],
    "instructions": [5, [], {}],
    "stream": ["true", 1, [], {}],
    "max_output_tokens": ["5", 1.5, [], True],
    "max_tokens": ["5", {}],
    "temperature": ["hot", [], {}, True],
    "top_p": ["x", [], False],
    "tools": [5, "x", {}, [5], [None], [{"type": "function"}], [{"type": "custom", "name": 5}]],
    "tool_choice": [5, [], True, "required", "any", {"type": "function", "name": "gone"}, {}],
    "reasoning": [5, "high", [], {"effort": 5}, {"effort": "ultra"}, {"summary": 5}],
    "text": [5, [], {"format": 5}, {"format": {"type": 5}}, {"format": {"type": "json_schema"}}],
    "top_logprobs": [3, "x"],
    "background": [True, "x", 5],
    "previous_response_id": ["resp_1", 5, {}],
    "conversation": ["c", {"id": "c"}],
    "prompt": [{"id": "p"}],
}
_ITEMS: list[Any] = [
    {"type": 5},
    {"type": []},
    {"type": "mcp_call"},
    {"type": "message", "role": 5, "content": "x"},
    {"type": "message", "role": "tool", "content": "x"},
    {"type": "message", "content": 5},
    {"type": "message", "content": {}},
    {"type": "message", "content": [5]},
    {"type": "message", "content": [{"type": 5}]},
    {"type": "message", "content": [{"type": "input_text", "text": 5}]},
    {"type": "message", "content": [{"type": "input_file"}]},
    {"type": "message", "content": [{"type": "refusal", "refusal": "x"}]},
    {"type": "message", "content": "x", "status": "failed"},
    {"type": "message", "content": "x", "status": 5},
    {"type": "reasoning", "summary": 5},
    {"type": "reasoning", "summary": [{"type": "summary_text"}]},
    {"type": "function_call"},
    {"type": "function_call", "name": 5},
    {"type": "function_call", "name": "f", "call_id": 5},
    {"type": "function_call", "name": "f", "namespace": []},
    {"type": "function_call_output", "output": "x"},
    {"type": "function_call_output", "call_id": "gone", "output": "x"},
    {"type": "tool_search_output", "call_id": "x", "tools": 5},
]
_CALLED = {"type": "function_call", "call_id": "c", "name": "f"}


def _odd() -> Iterator[dict[str, Any]]:
    """What clients have been seen to send, and worse: every one must be answered."""
    deep = '{"a":' + "[" * 50_000 + "]" * 50_000 + "}"
    for arguments in (
        "",
        " ",
        "ls",
        "null",
        "[1]",
        deep,
        '{"a":1e999}',
        r'{"\ud800":1}',
        {"a": 1},
        5,
        [],
        None,
    ):
        yield _GOOD | {"input": [_USER, _CALLED | {"arguments": arguments}]}
        yield _GOOD | {"input": [_USER, {**_CALLED, "type": "custom_tool_call", "input": arguments}]}
        yield _GOOD | {"input": [_USER, {**_CALLED, "type": "local_shell_call", "action": arguments}]}
        result = {"type": "function_call_output", "call_id": "c", "output": arguments}
        yield _GOOD | {"input": [_USER, _CALLED, result]}
    for name in ('a"b<>&', "｜DSML｜", "\0", "x" * 10_000):
        yield _GOOD | {
            "input": [_USER, _CALLED | {"name": name}],
            "tools": [{"type": "function", "name": name}],
        }
    yield _GOOD | {"input": [{"role": "latest_reminder", "content": "x"}, _USER, {"type": "compaction"}]}
    yield _GOOD | {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, _USER]}
    yield _GOOD | {"tools": [{"type": "web_search"}, {"type": "x"}, {"type": "function", "name": "same"}] * 2}
    yield _GOOD | {"include": ["x"], "store": True, "metadata": {"a": 1}, "truncation": "auto", "user": 5}
    yield _GOOD | {"temperature": -5, "top_p": 1e300, "max_output_tokens": -3}


def _wrong() -> Iterator[dict[str, Any]]:
    for name, values in _WRONG.items():
        for value in values:
            yield _GOOD | {name: value}
    for item in _ITEMS:
        yield _GOOD | {"input": [_USER, item]}
        yield _GOOD | {"input": [item]}


def test_every_wrong_body_is_refused_in_shape_and_every_odd_one_is_answered() -> None:
    with serve_script(script("fine"), context=200_000) as server, httpx.Client(timeout=60) as client:
        for body in _wrong():
            response = client.post(f"{server.url}/v1/responses", json=body)
            assert response.status_code == 400, body
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["message"]
            assert error["param"] in body, (body, error)
        for body in _odd():
            for stream in (False, True):
                response = client.post(f"{server.url}/v1/responses", json=body | {"stream": stream})
                assert response.status_code == 200, (str(body)[:300], response.text[:300])
                assert "response.failed" not in response.text
        for content in (b"", b"[]", b"{", b"\xff", json.dumps(_GOOD).encode()[:-1]):
            assert client.post(f"{server.url}/v1/responses", content=content).status_code == 400
        assert client.get(f"{server.url}/v1/responses/resp_1").status_code == 404
        good = client.post(f"{server.url}/v1/responses", json=_GOOD)
        assert good.json()["output"][0]["content"][0]["text"] == "fine"
        assert "internal error" not in server.log
