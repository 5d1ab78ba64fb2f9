"""Required calls and JSON answers on every endpoint, streamed and whole: one mechanism, four dialects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support.api_server import RunningServer, serve_script
from tests.support.conversations import forced

_PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_UNENFORCED = {"type": "array", "uniqueItems": True}
_JSON = [{"text": "The number is 5.", "else": ["{"]}, '"n":', " 5", "}"]


def _chat(content: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "think": False}


def _messages(content: str) -> dict[str, Any]:
    thinking = {"type": "disabled"}
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 500, "thinking": thinking}


def _responses(content: str) -> dict[str, Any]:
    return {"input": content, "reasoning": {"effort": "none"}}


def _tools(endpoint: str) -> list[dict[str, Any]]:
    named = [{"name": name, "parameters": _PARAMETERS} for name in ("read", "bash")]
    if endpoint == "messages":
        return [{"name": tool["name"], "input_schema": _PARAMETERS} for tool in named]
    if endpoint == "responses":
        return [{"type": "function"} | tool for tool in named]
    return [{"type": "function", "function": tool} for tool in named]


_BODIES: dict[str, Callable[[str], dict[str, Any]]] = {
    "chat/completions": _chat,
    "messages": _messages,
    "responses": _responses,
}
_CHOICES: dict[str, list[Any]] = {
    "chat/completions": ["required", {"type": "function", "function": {"name": "bash"}}],
    "messages": [{"type": "any"}, {"type": "tool", "name": "bash"}],
    "responses": ["required", {"type": "function", "name": "bash"}],
}
_UNKNOWN: dict[str, Any] = {
    "chat/completions": {"type": "function", "function": {"name": "gone"}},
    "messages": {"type": "tool", "name": "gone"},
    "responses": {"type": "function", "name": "gone"},
}


def _form(endpoint: str, schema: Any) -> dict[str, Any]:
    flat = {"type": "json_schema", "name": "answer", "schema": schema}
    if endpoint == "messages":
        return {"output_config": {"format": flat}}
    if endpoint == "responses":
        return {"text": {"format": flat}}
    return {"response_format": {"type": "json_schema", "json_schema": flat}}


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[RunningServer]:
    turns = [{"match": "call", "pieces": forced("bash")}, {"match": "json", "pieces": _JSON}]
    with serve_script({"turns": turns, "after": "cycle"}) as server:
        yield server


def _post(server: RunningServer, endpoint: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{endpoint}", json=body, timeout=30)


def _called(endpoint: str, answer: Any) -> list[str]:
    if endpoint == "messages":
        return [block["name"] for block in answer["content"] if block["type"] == "tool_use"]
    if endpoint == "responses":
        return [item["name"] for item in answer["output"] if item["type"] == "function_call"]
    return [call["function"]["name"] for call in answer["choices"][0]["message"]["tool_calls"]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("endpoint", _BODIES)
def test_a_required_call_is_made(server: RunningServer, endpoint: str, which: int, stream: bool) -> None:
    body = _BODIES[endpoint]("call") | {
        "tools": _tools(endpoint),
        "tool_choice": _CHOICES[endpoint][which],
        "stream": stream,
    }
    response = _post(server, endpoint, body)
    assert response.status_code == 200, response.text
    assert "rather" not in response.text
    if stream:
        assert '"name":"bash"' in response.text
    else:
        assert _called(endpoint, response.json()) == ["bash"]


@pytest.mark.parametrize("endpoint", _BODIES)
def test_without_being_required_the_call_is_the_models_choice(server: RunningServer, endpoint: str) -> None:
    response = _post(server, endpoint, _BODIES[endpoint]("call") | {"tools": _tools(endpoint)})
    assert "I'd rather not." in response.text


@pytest.mark.parametrize("endpoint", _BODIES)
def test_a_tool_that_is_not_offered_cannot_be_required(server: RunningServer, endpoint: str) -> None:
    for tools, choice in ((_tools(endpoint), _UNKNOWN[endpoint]), ([], _CHOICES[endpoint][0])):
        body = _BODIES[endpoint]("call") | {"tools": tools, "tool_choice": choice}
        response = _post(server, endpoint, body)
        assert response.status_code == 400
        assert "tool_choice" in response.json()["error"]["message"]


def _text(endpoint: str, answer: Any) -> str:
    if endpoint == "messages":
        return "".join(block["text"] for block in answer["content"])
    if endpoint == "responses":
        return "".join(part["text"] for item in answer["output"] for part in item["content"])
    return str(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize("endpoint", _BODIES)
def test_json_of_a_schema(server: RunningServer, endpoint: str) -> None:
    response = _post(server, endpoint, _BODIES[endpoint]("json") | _form(endpoint, _SCHEMA))
    assert response.status_code == 200, response.text
    jsonschema.validate(json.loads(_text(endpoint, response.json())), _SCHEMA)
    assert "The number" in _post(server, endpoint, _BODIES[endpoint]("json")).text


@pytest.mark.parametrize("endpoint", _BODIES)
def test_a_schema_that_cannot_be_enforced_is_refused_in_its_place(
    server: RunningServer, endpoint: str
) -> None:
    schema = {"properties": {"tags": _UNENFORCED}}
    response = _post(server, endpoint, _BODIES[endpoint]("json") | _form(endpoint, schema))
    assert response.status_code == 400
    assert "schema.properties.tags: cannot be enforced" in response.json()["error"]["message"]
    assert ("type" in response.json()) == (endpoint == "messages")
