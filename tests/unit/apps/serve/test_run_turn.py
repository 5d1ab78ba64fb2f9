"""What a turn on the worker tells of itself: counts, times, the ids of its calls."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from apps.serve.api.context import ServerContext
from apps.serve.jobs import Failed, Finished, JobEvent, PrefillDone, Usage
from apps.serve.log import ServerLog
from apps.serve.middleware import InFlight
from apps.serve.schema.chat_ask import parse_chat
from apps.serve.schema.completions import parse_completion
from apps.serve.settings import ServerSettings
from apps.serve.turn_request import Ask
from apps.serve.worker import InferenceWorker
from shared.scripted.engine import ScriptedEngine
from shared.scripted.script_file import parse_script
from tests.support.turns import BASH, pieces, tool

_USER = {"role": "user", "content": "u"}
_TOOLS = [{"type": "function", "function": tool("bash", "command")}]


@contextmanager
def _server(*turns: dict[str, Any]) -> Iterator[ServerContext]:
    settings, log = ServerSettings(), ServerLog(io.StringIO())
    engine = ScriptedEngine(parse_script(json.dumps({"turns": turns})))
    worker = InferenceWorker(lambda: engine, 4096, settings, log)
    worker.start()
    try:
        yield ServerContext(worker, settings, log, InFlight(), lambda: 0.0)
    finally:
        worker.stop(0)


def _run(context: ServerContext, ask: Ask) -> list[JobEvent]:
    """Everything that is told of a turn, to its end."""

    async def run() -> list[JobEvent]:
        job = context.job(context.prepare(ask, "req", b""))
        context.worker.submit(job)
        events: list[JobEvent] = []
        while not (events and isinstance(events[-1], Finished | Failed)):
            events += await job.channel.next(10)
        return events

    return asyncio.run(run())


def _finished(events: list[JobEvent]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def _chat(context: ServerContext, **body: Any) -> Ask:
    return parse_chat({"messages": [_USER]} | body, context.model, context.settings)


def test_reused_secured_and_remaining_tokens_add_up_to_the_prompt() -> None:
    with _server({"pieces": ["a"]}) as context:
        first = _run(context, _chat(context, think=False))
        history = [_USER, {"role": "assistant", "content": "a"}, _USER]
        second = _run(context, _chat(context, think=False, messages=history))
        again = _finished(_run(context, _chat(context, think=False, messages=history))).usage
    usage = _finished(first).usage
    # The state before the last token is remembered for the same prompt again.
    assert usage == Usage(prompt=usage.prompt, cached=0, cache_write=usage.prompt - 1, completion=1)
    assert usage in [replace(event.usage, completion=1) for event in first if isinstance(event, PrefillDone)]
    grown = _finished(second).usage
    assert grown.cached >= usage.prompt
    assert grown.cached + grown.cache_write == grown.prompt - 1
    assert (again.cached, again.cache_write) == (again.prompt - 1, 0)


def test_a_turn_tells_what_its_prompt_and_its_answer_took() -> None:
    slow = {"pieces": [{"text": "a", "delay_s": 0.02}], "prefill_block_s": 0.02}
    with _server(slow) as context:
        timings = _finished(_run(context, _chat(context))).timings
    assert timings.prefill >= 0.02
    assert timings.decode >= 0.02


@pytest.mark.parametrize(("kind", "prefix"), [("chat", "call_"), ("messages", "toolu_")])
def test_the_ids_of_calls_are_those_of_the_dialect(kind: Any, prefix: str) -> None:
    with _server({"pieces": pieces(BASH)}) as context:
        ask = replace(_chat(context, think=False, tools=_TOOLS), kind=kind)
        (call,) = _finished(_run(context, ask)).calls
    assert call.id.startswith(prefix)
    assert len(call.id) == len(prefix) + 32


@pytest.mark.parametrize(
    ("pieces", "body", "closed"),
    [(["a"], {}, False), (["a", "</think>"], {}, True), (["a"], {"think": False}, True)],
)
def test_whether_thinking_came_to_an_end(pieces: list[str], body: Any, closed: bool) -> None:
    with _server({"pieces": pieces}) as context:
        assert _finished(_run(context, _chat(context, **body))).thinking_closed is closed


def test_a_completion_leaves_nothing_for_a_next_turn_of_a_conversation() -> None:
    """Its answer is never sent back, so its text must not stand for a visible history."""
    with _server({"pieces": ["hm", "</think>", "a"]}) as context:
        ask = parse_completion({"prompt": "u"}, context.model, context.settings)
        _run(context, ask)
        history = [
            {"role": "system", "content": ask.messages[0].content},
            _USER,
            {"role": "assistant", "content": "a"},
            _USER,
        ]
        usage = _finished(_run(context, _chat(context, messages=history))).usage
        prompt = len(context.prepare(ask, "req", b"").prompt.tokens)
    assert usage.cached == prompt - 1
