"""Answers in the form that a client asks for, whatever the model would rather say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from openai import OpenAI
from pydantic import BaseModel

from shared.text import marks
from tests.support.api_server import RunningServer, serve_script
from tests.support.turns import M, tool

_CHARACTERS = {"logits": {chr(code): code % 7 for code in range(32, 127)} | {"\n": 3.0, "é": 1.0}}
# Ends what may end, and else says anything: what comes out is the masks' work.
_NOISE = {"logits": {'"': 9.0, "}": 9.0, "]": 9.0, marks.EOS: 9.0} | _CHARACTERS["logits"]}
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "tags": {"type": "array", "items": {"enum": ["<think>", f"<{M}tool_calls>", "`x"]}, "minItems": 2},
        "age": {"type": "integer", "minimum": 10, "maximum": 99},
    },
    "required": ["name", "tags", "age"],
    "additionalProperties": False,
}
_JSON = {"type": "json_schema", "json_schema": {"name": "person", "schema": _SCHEMA}}
_TOOLS = [{"type": "function", "function": tool("bash", "command")}]
_OPENER = ["\n\n<", M, "tool_calls>\n<", M, 'invoke name="bash">\n']
_REST = [
    "<", M, 'parameter name="command" string="true">ls</', M, "parameter>\n</", M, "invoke>\n</", M,
    "tool_calls>",
]  # fmt: skip


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[RunningServer]:
    turns = [
        {"match": "noise", "pieces": [_NOISE] * 2000},
        {"match": "answer", "pieces": ["{", *[_NOISE] * 2000]},
        {"match": "muse", "pieces": ["Hm, {", {"text": marks.EOS, "else": ["</think>"]}, *[_NOISE] * 2000]},
        {"match": "call", "pieces": [*_OPENER, *_REST]},
        {"match": "forever", "pieces": ['["', *["x"] * 2000]},
    ]
    with serve_script({"turns": turns, "after": "cycle"}) as server:
        yield server


def _post(server: RunningServer, content: str, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": content}], "think": False} | fields
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)


def _choice(server: RunningServer, content: str, **fields: Any) -> Any:
    response = _post(server, content, **fields)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


@pytest.mark.parametrize("seed", range(1, 6))
def test_an_answer_is_valid_against_its_schema(server: RunningServer, seed: int) -> None:
    choice = _choice(server, "noise", response_format=_JSON, seed=seed)
    jsonschema.validate(json.loads(choice["message"]["content"]), _SCHEMA)
    assert choice["finish_reason"] == "stop"


def test_any_object(server: RunningServer) -> None:
    for seed in range(1, 4):
        choice = _choice(server, "noise", response_format={"type": "json_object"}, seed=seed)
        assert isinstance(json.loads(choice["message"]["content"]), dict)
    assert not _choice(server, "noise", response_format={"type": "text"}, seed=1)["message"][
        "content"
    ].startswith("{")


def test_thinking_is_free_and_cannot_end_the_turn(server: RunningServer) -> None:
    choice = _choice(server, "muse", response_format=_JSON, think=True, seed=3)
    assert choice["message"]["reasoning_content"] == "Hm, {"
    jsonschema.validate(json.loads(choice["message"]["content"]), _SCHEMA)


def test_a_stream_joins_to_valid_json(server: RunningServer) -> None:
    client = OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)
    stream = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": "noise"}],
        response_format=_JSON,  # type: ignore[arg-type]
        stream=True,
        seed=4,
        extra_body={"think": False},
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert sum(map(bool, pieces)) > 5
    jsonschema.validate(json.loads("".join(pieces)), _SCHEMA)


class _Answer(BaseModel):
    word: str
    count: int | None
    inner: list[bool]


def test_the_sdk_parses_into_a_model(server: RunningServer) -> None:
    client = OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)
    answer = client.chat.completions.parse(
        model="any",
        messages=[{"role": "user", "content": "noise"}],
        response_format=_Answer,
        seed=2,
        extra_body={"think": False},
    )
    assert isinstance(answer.choices[0].message.parsed, _Answer)


def test_with_tools_the_model_may_call_one_instead(server: RunningServer) -> None:
    calling = _choice(server, "call", response_format=_JSON, tools=_TOOLS)
    (call,) = calling["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
    assert calling["finish_reason"] == "tool_calls"
    assert not calling["message"]["content"]
    answering = _choice(server, "answer", response_format=_JSON, tools=_TOOLS, seed=5)
    jsonschema.validate(json.loads(answering["message"]["content"]), _SCHEMA)


def test_a_budget_that_ends_inside_json_is_told(server: RunningServer) -> None:
    choice = _choice(
        server,
        "forever",
        max_tokens=20,
        response_format={"type": "json_schema", "json_schema": {"schema": {}}},
    )
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == '["' + "x" * 18


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            {"properties": {"a": {"uniqueItems": True, "type": "array"}}},
            "schema.properties.a: cannot be enforced",
        ),
        ({"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}, "nothing satisfies it"),
        ([], "response_format.json_schema.schema"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused(server: RunningServer, schema: Any, words: str) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    for stream in (False, True):
        response = _post(server, "noise", response_format=form, stream=stream)
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]
        assert response.json()["error"]["type"] == "invalid_request_error"
