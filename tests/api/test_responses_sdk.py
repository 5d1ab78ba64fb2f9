"""The official openai SDK against `/v1/responses` of a real server on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.api_server import RunningServer, serve_script
from tests.support.conversations import script
from tests.support.turns import CASE_31

_THINKING = script("Let me see.</think>Hello there.")
_REASONING = len("Let me see.") + 1
_TOKENS = _REASONING + len("Hello there.")
_TOOLS: Any = [
    {
        "type": "function",
        "name": "bash",
        "description": "Run a command",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
            "required": ["command"],
        },
    }
]
_SHOWN: Any = {"summary": "auto"}


def _client(server: RunningServer) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)


def _check(response: Any) -> None:
    """The answer of `_THINKING`, reasoning shown."""
    assert response.id.startswith("resp_")
    assert len(response.id) == 5 + 24
    assert (response.object, response.status, response.model) == ("response", "completed", "any")
    assert response.created_at > 1_700_000_000
    reasoning, message = response.output
    assert (reasoning.type, reasoning.summary[0].text) == ("reasoning", "Let me see.")
    assert message.role == "assistant"
    assert response.output_text == "Hello there."
    assert response.error is None
    assert response.incomplete_details is None
    usage = response.usage
    assert usage.output_tokens == _TOKENS
    assert usage.output_tokens_details.reasoning_tokens == _REASONING
    assert usage.total_tokens == usage.input_tokens + _TOKENS
    assert usage.input_tokens_details.cached_tokens + response.timings["prompt_n"] == usage.input_tokens


def test_whole() -> None:
    with serve_script(_THINKING) as server, _client(server) as client:
        _check(client.responses.create(model="any", input="hello", reasoning=_SHOWN))
        hidden = client.responses.create(model="any", input="hello", instructions="Be brief.")
    assert [item.type for item in hidden.output] == ["message"]
    assert hidden.usage is not None
    assert hidden.usage.output_tokens_details.reasoning_tokens == _REASONING


def test_streamed() -> None:
    with serve_script(_THINKING) as server, _client(server) as client:
        with client.responses.stream(model="any", input="hello", reasoning=_SHOWN) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        events = list(client.responses.create(model="any", input="hello", reasoning=_SHOWN, stream=True))
    assert text == "Hello there."
    _check(final)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    _check(events[-1].response)


def test_calls_are_accumulated_and_their_results_sent_back() -> None:
    with serve_script(script(CASE_31, "Done.</think>It says so.")) as server, _client(server) as client:
        history: Any = [{"role": "user", "content": "hello"}]
        with client.responses.stream(model="m", input=history, tools=_TOOLS, reasoning=_SHOWN) as stream:
            deltas = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
            first = stream.get_final_response()
        call: Any = first.output[-1]
        assert call.type == "function_call"
        assert "".join(deltas) == call.arguments
        assert len(deltas) > 5
        assert json.loads(call.arguments)["timeout"] == 10
        history += [item.model_dump(exclude_none=True) for item in first.output]
        history.append({"type": "function_call_output", "call_id": call.call_id, "output": "out"})
        second = client.responses.create(model="m", input=history, tools=_TOOLS, reasoning=_SHOWN)
    assert second.output_text == "It says so."
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens_details.cached_tokens == first.usage.total_tokens
    assert "source=memory-token" in server.log


def test_async() -> None:
    async def talk(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
            _check(await client.responses.create(model="any", input="hello", reasoning=_SHOWN))
            async with client.responses.stream(model="any", input="hello", reasoning=_SHOWN) as stream:
                async for _ in stream:
                    pass
                _check(await stream.get_final_response())
            pieces = await client.responses.create(model="any", input="hello", reasoning=_SHOWN, stream=True)
            last: Any = [event async for event in pieces][-1]
            _check(last.response)

    with serve_script(_THINKING) as server:
        asyncio.run(talk(server.url))


@pytest.mark.parametrize("streamed", [True, False])
def test_a_budget_that_ends_too_soon(streamed: bool) -> None:
    asked: Any = {"model": "deepseek-chat", "input": "hello", "max_output_tokens": 3}
    with serve_script(script("abcdef")) as server, _client(server) as client:
        if streamed:
            last: Any = list(client.responses.create(stream=True, **asked))[-1]
            assert last.type == "response.incomplete"
            response = last.response
        else:
            response = client.responses.create(**asked)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert [item.status for item in response.output] == ["incomplete"]
    assert response.output_text == "abc"


def test_failures_have_the_shape_of_the_family() -> None:
    turns = [
        {"pieces": ["a", "b"], "fail": {"at": "decode", "after": 1}},
        {"pieces": ["a"], "fail": {"at": "prefill", "after": 0}},
        {"pieces": ["fine"]},
    ]
    ask: Any = {"model": "deepseek-chat", "input": "hello"}
    with serve_script({"turns": turns}, context=64) as server, _client(server) as client:
        last: Any = list(client.responses.create(stream=True, **ask))[-1]
        assert last.type == "response.failed"
        assert last.response.status == "failed"
        assert last.response.error.code == "server_error"
        with pytest.raises(openai.InternalServerError):
            client.responses.create(**ask)
        assert client.responses.create(**ask).output_text == "fine"
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="m", input="x" * 100)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "input"
