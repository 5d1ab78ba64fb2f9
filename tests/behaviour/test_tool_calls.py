"""Tool calls of the embedded model through `ds4 serve`, in the official SDKs: the right call, then an answer
that uses the tool's result."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from shared.abilities.case import AbilityCase, ExpectedAnswer, ExpectedCall
from tests.support.embedded_model import cases_of, least_right, model_file
from tests.support.serve_process import running

_MODEL = "deepseek-v4-flash"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    arguments = ["-m", "apps.cli", "serve", "-m", str(model_file()), "--backend", "reference", "--port", "0"]
    with running(
        [sys.executable, *arguments, "--ctx", "4096", "--no-kv-disk", "--log-format", "text"]
    ) as process:
        yield process.url
        assert process.end(signal.SIGTERM) == 0


def _cases(count: int) -> list[tuple[AbilityCase, ExpectedCall, ExpectedAnswer]]:
    """The first cases without thoughts."""
    found = []
    for case in cases_of("tools"):
        call, answer = case.expected
        assert isinstance(call, ExpectedCall)
        assert isinstance(answer, ExpectedAnswer)
        if case.effort == "none":
            found.append((case, call, answer))
    return found[:count]


def _openai_says(client: OpenAI, case: AbilityCase, expected: ExpectedCall) -> tuple[Any, str]:
    """The arguments of the call, and what is said when the tool has answered."""
    messages: list[Any] = [{"role": "system", "content": case.system}, {"role": "user", "content": case.user}]
    fields: dict[str, Any] = {
        "model": _MODEL,
        "tools": [{"type": "function", "function": schema} for schema in case.tools],
        "temperature": 0,
        "max_tokens": 200,
        "extra_body": {"thinking": {"type": "disabled"}},
    }
    first = client.chat.completions.create(messages=messages, **fields).choices[0]
    calls = first.message.tool_calls or []
    if [call.function.name for call in calls] != [expected.tool]:
        return None, ""
    assert first.finish_reason == "tool_calls"
    messages += [
        first.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": calls[0].id, "content": expected.result},
    ]
    second = client.chat.completions.create(messages=messages, **fields).choices[0]
    return json.loads(calls[0].function.arguments), second.message.content or ""


def _anthropic_says(client: Anthropic, case: AbilityCase, expected: ExpectedCall) -> tuple[Any, str]:
    messages: list[Any] = [{"role": "user", "content": case.user}]
    fields: dict[str, Any] = {
        "model": _MODEL,
        "system": case.system,
        "tools": [
            {
                "name": schema["name"],
                "description": schema["description"],
                "input_schema": schema["parameters"],
            }
            for schema in case.tools
        ],
        "max_tokens": 200,
        "thinking": {"type": "disabled"},
        "extra_body": {"temperature": 0},  # the SDK has no word for it
    }
    first = client.messages.create(messages=messages, **fields)
    calls = [part for part in first.content if part.type == "tool_use"]
    if [call.name for call in calls] != [expected.tool]:
        return None, ""
    assert first.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": expected.result}
    messages += [
        {"role": "assistant", "content": [part.model_dump() for part in first.content]},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(messages=messages, **fields)
    return calls[0].input, "".join(part.text for part in second.content if part.type == "text")


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_the_right_tool_is_called_and_its_result_is_told(url: str, dialect: str, count: int) -> None:
    said = []
    for case, call, _ in _cases(count):
        if dialect == "openai":
            with OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
                said.append(_openai_says(client, case, call))
        else:
            with Anthropic(base_url=url, api_key="x", max_retries=0) as other:
                said.append(_anthropic_says(other, case, call))
    wanted = [(call.arguments, answer.text) for _, call, answer in _cases(count)]
    right = sum(mine == theirs for mine, theirs in zip(said, wanted, strict=True))
    assert right >= least_right("tools", len(wanted)), list(zip(wanted, said, strict=True))
