"""Log probabilities and penalties on chat answers, whole and streamed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.support.api_server import RunningServer, serve_script
from tests.support.turns import BASH, M, pieces, tool

_EVEN = {"logits": {"a": math.log(3), "b": 0.0}}
_TOOLS = [{"type": "function", "function": tool("bash", "command")}]


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[RunningServer]:
    turns = [
        {"match": "plain", "pieces": [_EVEN, "é", _EVEN]},
        {"match": "think", "pieces": ["Hm", "</think>", "ok"]},
        {"match": "marks", "pieces": ["Hm <", "</think>", "o", "<think>", "k"]},
        {"match": "call", "pieces": ["Well.", "\n\n", *pieces(BASH)]},
        {
            "match": "lost",
            "pieces": ["Well.\n\n<", M, 'invoke name="bash">oops</', M, "invoke>\n</", M, "tool_calls>"],
        },
        {"match": "again", "pieces": [_EVEN] * 200},
    ]
    with serve_script({"turns": turns, "after": "cycle"}) as server:
        yield server


def _choice(server: RunningServer, content: str, **fields: Any) -> Any:
    body = {"messages": [{"role": "user", "content": content}], "think": False, "temperature": 0} | fields
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def _chunks(server: RunningServer, content: str, **fields: Any) -> list[Any]:
    body = {"messages": [{"role": "user", "content": content}], "think": False, "temperature": 0} | fields
    text = httpx.post(f"{server.url}/v1/chat/completions", json=body | {"stream": True}, timeout=30).text
    lines = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return [chunk["choices"][0] for chunk in lines]


def test_every_token_of_the_text_has_its_own(server: RunningServer) -> None:
    choice = _choice(server, "plain", logprobs=True, top_logprobs=2)
    tokens = choice["logprobs"]["content"]
    assert bytes(byte for token in tokens for byte in token["bytes"]) == b"a\xc3\xa9a"
    assert [token["token"] for token in tokens] == ["a", "\ufffd", "\ufffd", "a"]
    first = tokens[0]
    assert first["logprob"] == pytest.approx(math.log(3 / 4), abs=1e-5)
    assert [best["token"] for best in first["top_logprobs"]] == ["a", "b"]
    assert first["top_logprobs"][1]["logprob"] == pytest.approx(math.log(1 / 4), abs=1e-5)
    assert tokens[1]["logprob"] == pytest.approx(0)
    assert choice["logprobs"]["reasoning_content"] is None


def test_without_being_asked_for_there_are_none(server: RunningServer) -> None:
    assert "logprobs" not in _choice(server, "plain")
    assert all("logprobs" not in choice for choice in _chunks(server, "plain"))
    assert _choice(server, "plain", logprobs=True)["logprobs"]["content"][0]["top_logprobs"] == []


def test_reasoning_has_its_own_and_its_end_mark_none(server: RunningServer) -> None:
    scored = _choice(server, "think", think=True, logprobs=True)["logprobs"]
    assert "".join(token["token"] for token in scored["reasoning_content"]) == "Hm"
    assert "".join(token["token"] for token in scored["content"]) == "ok"


def test_control_tokens_have_none_wherever_they_stand(server: RunningServer) -> None:
    choice = _choice(server, "marks", think=True, logprobs=True)
    assert choice["message"]["reasoning_content"] == "Hm <"
    assert choice["message"]["content"] == "ok"
    scored = choice["logprobs"]
    assert "".join(token["token"] for token in scored["reasoning_content"]) == "Hm <"
    assert "".join(token["token"] for token in scored["content"]) == "ok"


def test_calls_have_none(server: RunningServer) -> None:
    choice = _choice(server, "call", logprobs=True, tools=_TOOLS)
    assert choice["message"]["tool_calls"]
    assert "".join(token["token"] for token in choice["logprobs"]["content"]) == "Well."


def test_a_call_that_could_not_be_read_has_none_either(server: RunningServer) -> None:
    chunks = _chunks(server, "lost", logprobs=True, tools=_TOOLS)
    assert "was not run" in "".join(choice["delta"].get("content") or "" for choice in chunks)
    scored = [token for choice in chunks if choice.get("logprobs") for token in choice["logprobs"]["content"]]
    assert "".join(token["token"] for token in scored) == "Well."


def test_a_stream_carries_them_with_their_text(server: RunningServer) -> None:
    whole = _choice(server, "plain", logprobs=True, top_logprobs=3)["logprobs"]["content"]
    chunks = _chunks(server, "plain", logprobs=True, top_logprobs=3)
    assert all("logprobs" in choice for choice in chunks if choice["delta"])
    streamed = [choice for choice in chunks if choice.get("logprobs")]
    assert [token for choice in streamed for token in choice["logprobs"]["content"]] == whole
    for choice in streamed:
        data = bytes(byte for token in choice["logprobs"]["content"] for byte in token["bytes"])
        assert data.decode() == choice["delta"]["content"]


def test_the_sdk_reads_them(server: RunningServer) -> None:
    client = OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)
    messages: Any = [{"role": "user", "content": "plain"}]
    extra = {"think": False}
    answer = client.chat.completions.create(
        model="any", messages=messages, temperature=0, logprobs=True, top_logprobs=1, extra_body=extra
    )
    scored = answer.choices[0].logprobs
    assert scored is not None
    assert scored.content is not None
    assert scored.content[0].top_logprobs[0].token == "a"
    stream = client.chat.completions.create(
        model="any", messages=messages, temperature=0, logprobs=True, stream=True, extra_body=extra
    )
    chunks = [chunk.choices[0] for chunk in stream]
    assert sum(len(choice.logprobs.content or ()) for choice in chunks if choice.logprobs) == 4


def test_penalties_keep_an_answer_from_repeating_itself(server: RunningServer) -> None:
    def counts(**fields: Any) -> tuple[int, int]:
        text = _choice(server, "again", max_tokens=200, **fields)["message"]["content"]
        assert set(text) <= {"a", "b"}
        return text.count("a"), text.count("b")

    assert counts() == (200, 0)
    # "a" leads by ln 3: it has to lie two ahead of "b" before "b" is better.
    a, b = counts(frequency_penalty=1)
    assert 0 <= a - b <= 2
    # Once both were said, a presence penalty weighs the same on both.
    assert counts(presence_penalty=2) == (199, 1)
    assert counts(frequency_penalty=-1, presence_penalty=-1) == (200, 0)


def test_penalties_and_log_probabilities_go_together(server: RunningServer) -> None:
    choice = _choice(server, "again", max_tokens=4, logprobs=True, frequency_penalty=2)
    assert choice["message"]["content"] == "abab"
    expected = [math.log(3 / 4), math.log(1 / 4)] * 2
    assert [token["logprob"] for token in choice["logprobs"]["content"]] == pytest.approx(expected, abs=1e-5)
