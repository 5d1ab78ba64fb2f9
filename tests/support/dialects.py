"""One question asked in every dialect, whole or streamed, and the answers in one shape to compare.

Streams are put together by the official SDKs, so what is compared is what their users get.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anthropic import Anthropic
from openai import OpenAI

_NAMES: Final = {
    "stop": "end",
    "end_turn": "end",
    "completed": "end",
    "stop_sequence": "end",
    "length": "budget",
    "max_tokens": "budget",
    "max_output_tokens": "budget",
    "tool_calls": "calls",
    "tool_use": "calls",
}


@dataclass(frozen=True)
class Said:
    """An answer. `end` is `end`, `budget` or `calls`; tokens as the usage tells them."""

    text: str
    reasoning: str
    calls: list[tuple[str, Any]]
    end: str
    tokens: int
    reasoning_tokens: int


@dataclass(frozen=True)
class Question:
    """A question, with functions that may be called by their schemas. `budget` counts tokens."""

    text: str = "hello"
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    budget: int | None = None
    stop: str | None = None


Ask = Callable[[str, Question, bool], Said]


def _chat(url: str, question: Question, streamed: bool) -> Said:
    fields: dict[str, Any] = {
        "model": "any",
        "messages": [{"role": "user", "content": question.text}],
        "tools": [{"type": "function", "function": _function(*tool)} for tool in question.tools.items()],
    }
    fields |= {} if question.budget is None else {"max_tokens": question.budget}
    fields |= {} if question.stop is None else {"stop": question.stop}
    with OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        if not streamed:
            answer: Any = client.chat.completions.create(**fields)
        else:
            options = {"include_usage": True}
            with client.chat.completions.stream(**fields, stream_options=options) as stream:
                stream.until_done()
                answer = stream.current_completion_snapshot
    choice = answer.choices[0]
    message = choice.message
    calls = [
        (call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls or ()
        if choice.finish_reason == "tool_calls"
    ]
    return Said(
        message.content or "",
        (message.model_extra or {}).get("reasoning_content") or "",
        calls,
        _NAMES[choice.finish_reason],
        answer.usage.completion_tokens,
        answer.usage.completion_tokens_details.reasoning_tokens,
    )


def _responses(url: str, question: Question, streamed: bool) -> Said:
    fields: dict[str, Any] = {
        "model": "any",
        "input": question.text,
        "reasoning": {"summary": "auto"},
        "tools": [{"type": "function", **_function(*tool)} for tool in question.tools.items()],
    }
    fields |= {} if question.budget is None else {"max_output_tokens": question.budget}
    with OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        if not streamed:
            answer: Any = client.responses.create(**fields)
        else:
            answer = list(client.responses.create(**fields, stream=True))[-1].response
    reasoning, calls = "", []
    for item in answer.output:
        if item.type == "reasoning":
            reasoning += "".join(part.text for part in item.summary)
        elif item.type == "function_call" and item.status == "completed":
            calls.append((item.name, json.loads(item.arguments)))
    cut = answer.incomplete_details
    end = _NAMES[cut.reason if cut is not None else answer.status]
    return Said(
        answer.output_text,
        reasoning,
        calls,
        "calls" if calls and end == "end" else end,
        answer.usage.output_tokens,
        answer.usage.output_tokens_details.reasoning_tokens,
    )


def _messages(url: str, question: Question, streamed: bool) -> Said:
    fields: dict[str, Any] = {
        "model": "any",
        "max_tokens": 5000 if question.budget is None else question.budget,
        "messages": [{"role": "user", "content": question.text}],
        "tools": [{"name": name, "input_schema": dict(schema)} for name, schema in question.tools.items()],
    }
    fields |= {} if question.stop is None else {"stop_sequences": [question.stop]}
    with Anthropic(base_url=url, api_key="x", max_retries=0) as client:
        if not streamed:
            answer: Any = client.messages.create(**fields)
        else:
            with client.messages.stream(**fields) as stream:
                answer = stream.get_final_message()
    blocks = answer.content
    return Said(
        "".join(block.text for block in blocks if block.type == "text"),
        "".join(block.thinking for block in blocks if block.type == "thinking"),
        [(block.name, block.input) for block in blocks if block.type == "tool_use"],
        _NAMES[answer.stop_reason],
        answer.usage.output_tokens,
        answer.usage.output_tokens_details.thinking_tokens,
    )


def _function(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "parameters": dict(schema)}


DIALECTS: Final[dict[str, Ask]] = {"chat": _chat, "responses": _responses, "messages": _messages}
