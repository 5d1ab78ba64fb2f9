"""The official openai SDK against a real server on loopback."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.api_server import serve_script

_THINKING = {"turns": [{"pieces": ["Let me", " see.", "</think>", "Hello", " there."]}]}
_BLOCK = (
    "\n\n<｜DSML｜tool_calls>\n"
    '<｜DSML｜invoke name="bash">\n'
    '<｜DSML｜parameter name="command" string="true">echo hi</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="timeout" string="false">10</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>"
)
_CALLING = {
    "turns": [
        {"pieces": ["I run it.", "</think>", *re.split("(｜DSML｜)", _BLOCK)]},
        {"pieces": ["Done.", "</think>", "It says hi."]},
    ]
}
_TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Run a command",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
                "required": ["command"],
            },
        },
    }
]
_HELLO: Any = [{"role": "user", "content": "hello"}]


def _client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)


def test_a_whole_answer_with_reasoning_and_usage() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        answer = client.chat.completions.create(model="any", messages=_HELLO)
    message = answer.choices[0].message
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "any"
    assert message.content == "Hello there."
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"] == "Let me see."
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.prompt_tokens_details is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens == len("Let me see.") + 1 + len("Hello there.")
    assert usage.completion_tokens_details.reasoning_tokens == len("Let me see.") + 1
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert answer.model_extra is not None
    timings = answer.model_extra["timings"]
    assert (timings["prompt_n"], timings["predicted_n"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert timings["cache_n"] == 0
    assert timings["prompt_per_second"] > 0
    assert timings["predicted_per_second"] > 0


def test_a_stream_carries_the_same_answer() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        stream = client.chat.completions.create(
            model="any", messages=_HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "Hello there."
    assert (
        "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == "Let me see."
    )
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1
    assert [bool((chunk.model_extra or {}).get("timings")) for chunk in chunks][-2:] == [False, True]


def test_no_usage_chunk_unless_asked() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        chunks = list(client.chat.completions.create(model="m", messages=_HELLO, stream=True))
    assert all(chunk.choices for chunk in chunks)
    assert "timings" in (chunks[-1].model_extra or {})


def test_a_tool_call_streams_its_arguments_and_the_next_turn_reuses_everything() -> None:
    with serve_script(_CALLING) as server, _client(server.url) as client:
        with client.chat.completions.stream(model="m", messages=_HELLO, tools=_TOOLS) as stream:
            final = stream.get_final_completion()
        choice = final.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert call.id.startswith("call_")
        assert len(call.id) == 5 + 32
        assert call.function.name == "bash"
        assert json.loads(call.function.arguments) == {"command": "echo hi", "timeout": 10}
        history: Any = [
            *_HELLO,
            {
                "role": "assistant",
                "content": choice.message.content,
                "reasoning_content": "I run it.",
                "tool_calls": [call.model_dump(include={"id", "type", "function"})],
            },
            {"role": "tool", "tool_call_id": call.id, "content": "hi\n"},
        ]
        second = client.chat.completions.create(model="m", messages=history, tools=_TOOLS)
    assert second.choices[0].message.content == "It says hi."
    first_usage, usage = final.usage, second.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    new = usage.prompt_tokens - (usage.prompt_tokens_details.cached_tokens or 0)
    # Only the end of the turn, the result and the marks of the next answer are new.
    assert 0 < new < 60
    assert first_usage is None or first_usage.prompt_tokens > 0
    assert "source=memory-token" in server.log


def test_argument_fragments_come_while_they_are_generated() -> None:
    with serve_script(_CALLING) as server, _client(server.url) as client:
        stream = client.chat.completions.create(model="m", messages=_HELLO, tools=_TOOLS, stream=True)
        calls = [c for chunk in stream for c in chunk.choices[0].delta.tool_calls or []]
    assert calls[0].id is not None
    assert all(call.id is None for call in calls[1:])
    fragments = [call.function.arguments or "" for call in calls if call.function is not None]
    assert "".join(fragments) == '{"command":"echo hi","timeout":10}'
    assert len(fragments) > 5


def test_a_whole_answer_with_a_call() -> None:
    with serve_script(_CALLING) as server, _client(server.url) as client:
        answer = client.chat.completions.create(model="m", messages=_HELLO, tools=_TOOLS)
    assert answer.choices[0].message.content == ""
    assert answer.choices[0].message.tool_calls is not None
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(("text", "stop", "expected"), [("abXc", ["X"], "ab"), ("fooENDbar", "END", "foo")])
@pytest.mark.parametrize("streamed", [False, True])
def test_stop_strings(text: str, stop: Any, expected: str, streamed: bool) -> None:
    with serve_script({"turns": [{"pieces": list(text)}]}) as server, _client(server.url) as client:
        arguments: dict[str, Any] = {"model": "deepseek-chat", "messages": _HELLO, "stop": stop}
        if streamed:
            chunks = list(client.chat.completions.create(stream=True, **arguments))
            content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            finish = chunks[-1].choices[0].finish_reason
        else:
            choice = client.chat.completions.create(**arguments).choices[0]
            content, finish = choice.message.content or "", choice.finish_reason
    assert (content, finish) == (expected, "stop")


def test_a_budget_spent_on_thinking_is_honest() -> None:
    with serve_script({"turns": [{"pieces": ["think "] * 50}]}) as server, _client(server.url) as client:
        answer = client.chat.completions.create(model="m", messages=_HELLO, max_tokens=16)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == ""
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 16


def test_a_prompt_over_the_context_is_a_400_with_figures() -> None:
    long: Any = [{"role": "user", "content": "x" * 100}]
    with (
        serve_script(_THINKING, context=64) as server,
        _client(server.url) as client,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        client.chat.completions.create(model="m", messages=long)
    assert caught.value.code == "context_length_exceeded"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["n_ctx"] == 64


def test_an_engine_fault_is_an_exception_in_both_forms_and_the_next_request_works() -> None:
    script = {
        "turns": [
            {"pieces": ["a", "b", "c"], "fail": {"at": "decode", "after": 2}},
            {"pieces": ["a"], "fail": {"at": "prefill", "after": 0}},
            {"pieces": ["fine"]},
        ]
    }
    with serve_script(script) as server, _client(server.url) as client:
        with pytest.raises(openai.APIError):
            list(client.chat.completions.create(model="deepseek-chat", messages=_HELLO, stream=True))
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="deepseek-chat", messages=_HELLO)
        answer = client.chat.completions.create(model="deepseek-chat", messages=_HELLO)
        evaluated = sum(entry["evaluated"] for entry in server.journal if entry["turn"] == 2)
    assert answer.usage is not None
    assert evaluated == answer.usage.prompt_tokens
    assert answer.choices[0].message.content == "fine"


async def _chat_async(url: str) -> tuple[str, str]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        whole = await client.chat.completions.create(model="m", messages=_HELLO)
        stream = await client.chat.completions.create(model="m", messages=_HELLO, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    return whole.choices[0].message.content or "", "".join(pieces)


def test_the_async_client() -> None:
    import asyncio

    with serve_script(_THINKING) as server:
        assert asyncio.run(_chat_async(server.url)) == ("Hello there.", "Hello there.")


def test_the_models_list() -> None:
    with serve_script(_THINKING, context=1234) as server, _client(server.url) as client:
        listed = list(client.models.list())
        one = client.models.retrieve("deepseek-v4-pro")
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-5")
    assert [model.id for model in listed] == ["deepseek-v4-flash", "deepseek-v4-pro"]
    for model in [*listed, one]:
        extra = model.model_extra or {}
        assert extra["context_length"] == extra["max_model_len"] == 1234
        assert extra["top_provider"]["max_completion_tokens"] == 1234
    assert listed[0].owned_by == "ds4"
