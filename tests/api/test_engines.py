"""The server around engines other than the script: the tiny model, and one that breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai import OpenAI

from apps.serve.settings import ServerSettings
from shared.scripted.engine import ScriptedEngine
from shared.scripted.script_file import parse_script
from shared.session import Engine
from tests.support.api_server import QUICK, serve_engine
from tests.support.tiny_engines import open_mlx, open_reference

_HELLO: Any = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("open_engine", [open_mlx, open_reference])
def test_the_tiny_model_answers_the_same_streamed_and_whole(open_engine: Callable[[], Engine]) -> None:
    asked: dict[str, Any] = {"model": "deepseek-chat", "messages": _HELLO, "max_tokens": 12, "temperature": 0}
    with (
        serve_engine(open_engine, context=512) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client,
    ):
        whole = client.chat.completions.create(**asked)
        chunks = list(client.chat.completions.create(stream=True, **asked))
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    assert whole.choices[0].finish_reason == "length"
    assert whole.choices[0].message.content
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    with (
        serve_engine(open_engine, context=512) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client,
    ):
        history = [*_HELLO, {"role": "assistant", "content": whole.choices[0].message.content}]
        first = client.chat.completions.create(**asked)
        second = client.chat.completions.create(
            **asked | {"messages": [*history, {"role": "user", "content": "go on"}]}
        )
    assert first.choices[0].message.content == whole.choices[0].message.content
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None


class _Fragile(ScriptedEngine):
    """Raises what no engine should raise, once, when the session is told to sync."""

    def open_session(self, context: int) -> Any:
        session = super().open_session(context)
        sync = session.sync
        faults = [RuntimeError("device lost at /secret/path")]

        def failing_sync(*arguments: Any, **named: Any) -> Any:
            if faults:
                raise faults.pop()
            return sync(*arguments, **named)

        session.sync = failing_sync  # type: ignore[method-assign]
        return session


@pytest.mark.parametrize("stream", [True, False])
def test_an_unforeseen_fault_is_one_log_line_and_costs_one_request(stream: bool) -> None:
    body = {"model": "deepseek-chat", "messages": _HELLO}
    engine = _Fragile(parse_script('{"turns": [{"pieces": ["ok"]}]}'))
    with serve_engine(lambda: engine) as server:
        url = f"{server.url}/v1/chat/completions"
        broken = httpx.post(url, json=body | {"stream": stream})
        healthy = httpx.post(url, json=body)
        log = server.log
    assert broken.status_code == (200 if stream else 500)
    assert "internal error" in broken.text
    assert "secret" not in broken.text
    assert healthy.json()["choices"][0]["message"]["content"] == "ok"
    assert next(entry.call for entry in engine.journal.entries) == "invalidate"
    assert log.count("internal error: RuntimeError: device lost") == 1


def test_an_engine_that_does_not_open_is_reported_to_whoever_starts_the_server() -> None:
    def refuse() -> Engine:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"), serve_engine(refuse):
        pass


def test_log_lines_that_people_grep_for() -> None:
    script = '{"turns": [{"pieces": ["a", "</think>", "b", "b", "b"]}], "prefill_chunk": 8}'
    settings = ServerSettings(timing=QUICK)
    body = {"messages": _HELLO, "max_tokens": 130}
    with serve_engine(lambda: ScriptedEngine(parse_script(script)), settings=settings) as server:
        reply = httpx.post(f"{server.url}/v1/chat/completions", json=body)
        httpx.post(f"{server.url}/v1/chat/completions", json={})
        log = server.log
    prompt = reply.json()["usage"]["prompt_tokens"]
    assert f"chat ctx=0..{prompt}:{prompt} prompt start slot=0 req=req_" in log
    assert f"chat ctx=0..{prompt}:{prompt} prefill chunk 8/{prompt} (" in log
    assert f" prefill chunk {prompt - 1}/{prompt} (" not in log
    assert f"chat ctx=0..{prompt}:{prompt} prompt done 0." in log
    (summary,) = [line for line in log.splitlines() if "finish=" in line]
    assert f"gen=5 source=miss prefilled={prompt} prefill=" in summary
    assert f"req={reply.headers['x-request-id']}" in summary
    assert "POST /v1/chat/completions 400 messages: field required req=req_" in log


def test_an_effort_that_the_checkpoint_does_not_grant_is_noted_in_the_log() -> None:
    class Preview(ScriptedEngine):
        effort_profile = "preview"

    engine = Preview(parse_script('{"turns": [{"pieces": ["ok"]}]}'))
    with serve_engine(lambda: engine) as server:
        for effort in ("high", "max"):
            body = {"messages": _HELLO, "reasoning_effort": effort}
            reply = httpx.post(f"{server.url}/v1/chat/completions", json=body)
            assert reply.status_code == 200
    assert server.log.count("effort max needs a context of 393216 tokens") == 1
