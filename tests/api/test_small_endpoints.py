"""Endpoints that run no turn: tokens, embeddings, models, readiness."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from apps.serve.settings import ServerSettings
from apps.serve.worker import InferenceWorker
from shared.scripted.vocabulary import CONTROL, tokenizer
from tests.support.api_server import QUICK, RunningServer, serve_script
from tests.support.turns import tool

_SCRIPT = {"turns": [{"pieces": ["ok"]}]}


def _post(server: RunningServer, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{path}", json=body)


def test_texts_become_tokens_and_texts_again() -> None:
    text = "é <think> 中"
    with serve_script(_SCRIPT, context=77) as server:
        plain = _post(server, "tokenize", {"content": text}).json()
        named = _post(server, "tokenize", {"prompt": text, "model": "any"}).json()
        special = _post(server, "tokenize", {"content": text, "parse_special": True}).json()
        back = _post(server, "detokenize", {"tokens": special["tokens"]}).json()
        empty = _post(server, "tokenize", {"content": ""}).json()
        cut = _post(server, "detokenize", {"tokens": [*"中".encode()][:2]}).json()
    tokens = list(text.encode())
    assert plain == named == {"tokens": tokens, "count": len(tokens), "max_model_len": 77}
    assert CONTROL["<think>"] in special["tokens"]
    assert special["count"] == len(tokens) - len("<think>") + 1
    assert back == {"content": text}
    assert empty["tokens"] == []
    assert cut == {"content": "\ufffd"}


def test_a_chat_has_the_tokens_it_will_be_answered_with_however_long_it_is() -> None:
    chat: dict[str, Any] = {
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": tool("bash", "command")}],
        "thinking": False,
    }
    with serve_script(_SCRIPT) as server:
        counted = _post(server, "tokenize", chat).json()
        answered = _post(server, "chat/completions", chat).json()
    with serve_script(_SCRIPT, context=64) as small:
        too_long = _post(small, "tokenize", chat).json()
    assert counted["count"] == len(counted["tokens"]) == answered["usage"]["prompt_tokens"]
    text = tokenizer().decode(counted["tokens"]).decode()
    assert text.endswith("be brief<｜User｜>hello<｜Assistant｜></think>")
    assert too_long == counted | {"max_model_len": 64}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("tokenize", {}, "content"),
        ("tokenize", {"content": 5}, "content"),
        ("tokenize", {"content": "x", "parse_special": "yes"}, "parse_special"),
        ("tokenize", {"messages": []}, "messages"),
        ("tokenize", {"messages": [{"content": 5}]}, "messages"),
        ("detokenize", {}, "tokens"),
        ("detokenize", {"tokens": "x"}, "tokens"),
        ("detokenize", {"tokens": [1, "2"]}, "tokens"),
        ("detokenize", {"tokens": [True]}, "tokens"),
        ("detokenize", {"tokens": [1, -1]}, "tokens"),
        ("detokenize", {"tokens": [10**300]}, "tokens"),
    ],
)
def test_wrong_bodies_are_refused_by_name(path: str, body: Any, param: str) -> None:
    with serve_script(_SCRIPT) as server:
        reply = _post(server, path, body)
        text = httpx.post(f"{server.url}/v1/{path}", content=b"[")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert text.status_code == 400
    assert "not valid JSON" in text.json()["error"]["message"]


def test_embeddings_are_refused_clearly() -> None:
    with serve_script(_SCRIPT) as server, OpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        with pytest.raises(openai.APIStatusError) as caught:
            client.with_options(max_retries=0).embeddings.create(model="m", input="x")
        listed = httpx.get(f"{server.url}/v1/embeddings")
    assert caught.value.status_code == 501
    assert "embedding" in caught.value.message
    assert listed.status_code == 405


@pytest.mark.parametrize(
    ("context", "budget", "output"),
    [(32768, 393_216, 32768), (4096, 393_216, 4096), (100_000, 393_216, 100_000), (4096, 500, 500)],
)
def test_models_tell_the_served_context_under_every_name(context: int, budget: int, output: int) -> None:
    settings = ServerSettings(max_tokens=budget, timing=QUICK)
    with serve_script(_SCRIPT, context=context, settings=settings) as server:
        listed = httpx.get(f"{server.url}/v1/models").json()
        one = httpx.get(f"{server.url}/v1/models/{listed['last_id']}").json()
        for alias in one["aliases"]:
            assert httpx.get(f"{server.url}/v1/models/{alias}").json() == {**one, "id": alias}
        assert httpx.get(f"{server.url}/v1/models/deepseek-v3").status_code == 404
    assert [model["id"] for model in listed["data"]] == ["deepseek-v4-flash", "deepseek-v4-pro"]
    assert (listed["object"], listed["has_more"], listed["first_id"]) == ("list", False, "deepseek-v4-flash")
    assert one == listed["data"][1]
    for model in listed["data"]:
        assert model["context_length"] == model["max_model_len"] == model["max_input_tokens"] == context
        assert model["top_provider"]["context_length"] == context
        assert model["max_output_tokens"] == model["max_tokens"] == output
        assert model["top_provider"]["max_completion_tokens"] == output


@pytest.mark.parametrize(("thinking", "effort"), [(True, "low"), (False, "none")])
def test_models_tell_what_holds_when_a_request_says_nothing(thinking: bool, effort: str) -> None:
    settings = ServerSettings(thinking=thinking, effort="low", timing=QUICK)
    with serve_script(_SCRIPT, settings=settings) as server:
        (model, _) = httpx.get(f"{server.url}/v1/models").json()["data"]
    assert model["default_parameters"] == {
        "temperature": 1.0,
        "top_p": 1.0,
        "min_p": 0.05,
        "reasoning_effort": effort,
    }


def test_small_endpoints_answer_while_the_model_is_busy_and_readiness_ends_with_the_server() -> None:
    gate = threading.Event()
    script = {"turns": [{"pieces": ["a", {"text": "b", "delay_s": 60}]}]}
    with (
        serve_script(script, gate=gate) as server,
        httpx.Client(base_url=server.url) as client,
        httpx.stream(
            "POST",
            f"{server.url}/v1/completions",
            json={"prompt": "x", "stream": True, "think": False},
        ) as stream,
    ):
        lines = stream.iter_lines()
        assert '"text":"a"' in next(line for line in lines if line.startswith("data"))
        assert client.get("/ready").json() == {"status": "ready"}
        assert client.post("/v1/tokenize", json={"content": "x"}).json()["count"] == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(InferenceWorker, "stopping", True)
            stopping = client.get("/ready")
        gate.set()
        assert any('"text":"b"' in line for line in lines)
    assert (stopping.status_code, stopping.json()) == (503, {"status": "stopping"})
