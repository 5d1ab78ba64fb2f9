"""The official anthropic SDK against a real server on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from tests.support.api_server import serve_script
from tests.support.conversations import script
from tests.support.turns import block, invoke, parameter

_THINKING = script("Let me see.</think>Hello there.")
_CALL = "\n\n" + block(invoke("bash", parameter("command", "echo hi"), parameter("timeout", "10", "false")))
_CALLING = script(f"I run it.</think>{_CALL}", "Done.</think>It says hi.")
_TOOLS: Any = [
    {
        "name": "bash",
        "description": "Run a command",
        "input_schema": {
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
            "required": ["command"],
        },
    }
]
_HELLO: Any = [{"role": "user", "content": "hello"}]
_REASONING = len("Let me see.") + 1
_TOKENS = _REASONING + len("Hello there.")


def _ask(**fields: Any) -> Any:
    return {"model": "any", "max_tokens": 1000, "messages": _HELLO} | fields


def _client(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="x", max_retries=0, timeout=30)


def _prompt(usage: Any) -> int:
    """The three figures that make up a prompt, together."""
    total: int = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return total


def _check(message: Any) -> None:
    """The answer of `_THINKING`."""
    assert message.id.startswith("msg_")
    assert len(message.id) == 4 + 24
    assert (message.type, message.role, message.model) == ("message", "assistant", "any")
    thinking, text = message.content
    assert (thinking.type, thinking.thinking) == ("thinking", "Let me see.")
    assert thinking.signature
    assert (text.type, text.text) == ("text", "Hello there.")
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens == _TOKENS
    assert message.usage.output_tokens_details.thinking_tokens == _REASONING


def test_a_whole_answer() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        message = client.messages.create(**_ask())
        counted = client.messages.count_tokens(model="any", messages=_HELLO)
    _check(message)
    assert _prompt(message.usage) == counted.input_tokens
    assert message.usage.cache_read_input_tokens == 0
    assert message.model_extra is not None
    assert message.model_extra["timings"]["predicted_n"] == _TOKENS


def test_a_stream_comes_to_the_same_answer() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        with client.messages.stream(**_ask()) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        raw = list(client.messages.create(**_ask(), stream=True))
    assert text == "Hello there."
    _check(message)
    assert raw[0].type == "message_start"
    assert raw[-1].type == "message_stop"
    # The same prompt again: all of it but its last token is reused.
    assert raw[0].message.usage.cache_read_input_tokens == _prompt(raw[0].message.usage) - 1


def test_whole_and_streamed_answers_of_the_async_client() -> None:
    async def run(url: str) -> None:
        async with AsyncAnthropic(base_url=url, api_key="x", max_retries=0, timeout=30) as client:
            _check(await client.messages.create(**_ask()))
            async with client.messages.stream(**_ask()) as stream:
                assert "".join([text async for text in stream.text_stream]) == "Hello there."
                _check(await stream.get_final_message())
            counted = await client.messages.count_tokens(model="any", messages=_HELLO, tools=_TOOLS)
            assert counted.input_tokens > 100

    with serve_script(_THINKING) as server:
        asyncio.run(run(server.url))


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_answered_from_memory(streamed: bool) -> None:
    def ask(client: Anthropic, messages: Any) -> Any:
        if not streamed:
            return client.messages.create(**_ask(messages=messages, tools=_TOOLS))
        with client.messages.stream(**_ask(messages=messages, tools=_TOOLS)) as stream:
            return stream.get_final_message()

    with serve_script(_CALLING) as server, _client(server.url) as client:
        first = ask(client, _HELLO)
        _, call = first.content
        assert first.stop_reason == "tool_use"
        assert call.id.startswith("toolu_")
        assert len(call.id) == 6 + 32
        assert (call.name, call.input) == ("bash", {"command": "echo hi", "timeout": 10})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "hi"}
        history = [
            *_HELLO,
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [result]},
        ]
        second = ask(client, history)
    assert [block.type for block in second.content] == ["thinking", "text"]
    assert second.content[1].text == "It says hi."
    live = _prompt(first.usage) + first.usage.output_tokens
    assert second.usage.cache_read_input_tokens == live
    # The end mark, the user mark, the result and its tags, two marks of the answer.
    assert _prompt(second.usage) == live + 1 + 1 + len("<tool_result>hi</tool_result>") + 2


def test_errors_are_the_sdks_exceptions() -> None:
    with serve_script(_THINKING, context=2000) as server, _client(server.url) as client:
        with pytest.raises(anthropic.BadRequestError) as wrong:
            client.messages.create(**_ask(messages=[]))
        with pytest.raises(anthropic.BadRequestError) as long:
            client.messages.create(**_ask(messages=[{"role": "user", "content": "x" * 3000}]))
        assert client.messages.create(**_ask()).stop_reason == "end_turn"
    assert "send at least one message" in str(wrong.value)
    body: Any = long.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith("prompt is too long: ")


def test_an_engine_that_fails_is_an_exception_and_the_next_request_works() -> None:
    failing = {"pieces": ["a", "b", "c"], "fail": {"at": "decode", "after": 2}}
    with (
        serve_script({"turns": [failing, failing, {"pieces": ["</think>", "ok"]}]}) as server,
        _client(server.url) as client,
    ):
        with pytest.raises(anthropic.APIStatusError) as whole:
            client.messages.create(**_ask())
        stream = client.messages.create(**_ask(), stream=True)
        with pytest.raises(anthropic.APIStatusError) as streamed:
            list(stream)
        assert client.messages.create(**_ask()).content[-1].text == "ok"
    for failed in (whole, streamed):
        body: Any = failed.value.body
        assert body["error"]["type"] == "api_error"
