"""Completions: the official openai SDK against a real server on loopback, and what stands on the wire."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.api_server import serve_script

_RAW = "Let me see.</think>Hello there."
_THINKING = {"turns": [{"pieces": ["Let me", " see.", "</think>", "Hello", " there."]}]}


def _client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)


def test_a_whole_completion_is_raw_text_with_its_counts() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        answer = client.completions.create(model="any", prompt="hello")
    assert answer.id.startswith("cmpl-")
    assert answer.object == "text_completion"
    assert answer.model == "any"
    assert answer.choices[0].text == _RAW
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage is not None
    assert usage.completion_tokens == len("Let me see.") + 1 + len("Hello there.")
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == len("Let me see.") + 1
    assert "completion ctx=0.." in server.log


def test_a_streamed_completion_carries_the_same_text() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        stream = client.completions.create(
            model="any", prompt="hello", stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(texts) == _RAW
    assert len(texts) > 3
    assert texts[-1] == ""
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert finishes == [*[None] * (len(finishes) - 1), "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


def test_no_usage_unless_asked_and_an_end_mark() -> None:
    with serve_script(_THINKING) as server:
        text = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "stream": True}).text
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert events[-1] == "[DONE]"
    assert all("usage" not in event for event in events)
    first = json.loads(events[0])
    assert sorted(first) == ["choices", "created", "id", "model", "object"]
    assert first["choices"] == [{"text": "L", "index": 0, "finish_reason": None}]


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_that_the_budget_cuts_has_no_end_mark(streamed: bool) -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        assert _completion(client, streamed, max_tokens=5) == ("Let m", "length")


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_without_an_answer_ends_in_its_mark(streamed: bool) -> None:
    with (
        serve_script({"turns": [{"pieces": ["hm", "</think>"]}]}) as server,
        _client(server.url) as client,
    ):
        assert _completion(client, streamed) == ("hm</think>", "stop")


@pytest.mark.parametrize("streamed", [False, True])
def test_stray_marks_and_stop_strings_do_not_show(streamed: bool) -> None:
    script = {"turns": [{"pieces": ["a", "</think>", "b", "<｜User｜>", "c", "</think>", "d", "END", "e"]}]}
    with serve_script(script) as server, _client(server.url) as client:
        assert _completion(client, streamed, stop="END") == ("a</think>bcd", "stop")


@pytest.mark.parametrize("streamed", [False, True])
def test_without_thinking_there_is_only_the_answer(streamed: bool) -> None:
    with serve_script({"turns": [{"pieces": ["plain"]}]}) as server, _client(server.url) as client:
        assert _completion(client, streamed, extra_body={"think": False}) == ("plain", "stop")


def _completion(client: OpenAI, streamed: bool, **fields: Any) -> tuple[str, str | None]:
    arguments: dict[str, Any] = {"model": "m", "prompt": "hello"} | fields
    if not streamed:
        choice = client.completions.create(**arguments).choices[0]
        return choice.text, choice.finish_reason
    choices = [chunk.choices[0] for chunk in client.completions.create(stream=True, **arguments)]
    return "".join(choice.text for choice in choices), choices[-1].finish_reason


async def _complete_async(url: str) -> tuple[str, str]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        whole = await client.completions.create(model="m", prompt="hello")
        stream = await client.completions.create(model="m", prompt="hello", stream=True)
        pieces = [chunk.choices[0].text async for chunk in stream]
    return whole.choices[0].text, "".join(pieces)


def test_the_async_client() -> None:
    with serve_script(_THINKING) as server:
        assert asyncio.run(_complete_async(server.url)) == (_RAW, _RAW)


def test_the_same_prompt_again_reuses_all_but_its_last_token() -> None:
    with serve_script(_THINKING) as server, _client(server.url) as client:
        first = client.completions.create(model="m", prompt="hello " * 20).usage
        second = client.completions.create(model="m", prompt="hello " * 20).usage
    assert first is not None
    assert second is not None
    assert second.prompt_tokens_details is not None
    assert second.prompt_tokens_details.cached_tokens == first.prompt_tokens - 1


def test_a_prompt_over_the_context_is_a_400_with_figures() -> None:
    with (
        serve_script(_THINKING, context=64) as server,
        _client(server.url) as client,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        client.completions.create(model="m", prompt="x" * 100)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": [[1]]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"n": 2}, "n"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"logprobs": 0}, "logprobs"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"frequency_penalty": -1}, "frequency_penalty"),
        ({"temperature": "hot"}, "temperature"),
        ({"reasoning_effort": "ultra"}, "reasoning_effort"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with serve_script(_THINKING) as server:
        reply = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"} | fields)
        missing = httpx.post(f"{server.url}/v1/completions", json={})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize("streamed", [False, True])
def test_an_engine_fault_is_an_error_and_the_next_request_works(streamed: bool) -> None:
    script = {"turns": [{"pieces": ["a", "b"], "fail": {"at": "decode", "after": 1}}, {"pieces": ["fine"]}]}
    with serve_script(script) as server, _client(server.url) as client:
        with pytest.raises(openai.APIError):
            _completion(client, streamed, extra_body={"think": False})
        assert _completion(client, streamed, extra_body={"think": False}) == ("fine", "stop")
