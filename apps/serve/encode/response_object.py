"""A response as one object: whole, or as far as a stream has come. Spec: chat §5.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.serve.encode.answer import Answer
from apps.serve.encode.response_items import CallItem, NewId, message_item, random_id, reasoning_item
from apps.serve.encode.usage import timings_body
from apps.serve.errors import Failure
from apps.serve.jobs import Finished, Usage
from apps.serve.schema.responses_tools import WireTool


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What stays the same from the first event to the last."""

    id: str
    created: int
    model: str
    tool_choice: str | Mapping[str, Any]

    def body(self, status: str, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": list(output),
            "parallel_tool_calls": True,
            "tool_choice": self.tool_choice,
            "tools": [],
            "metadata": {},
            "usage": None,
        }

    def finished(self, output: Sequence[dict[str, Any]], finished: Finished) -> dict[str, Any]:
        """The response of a turn that ended well."""
        body = self.body(status_of(finished), output)
        if finished.finish_reason == "length":
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        return body | {"usage": _usage(finished.usage), "timings": timings_body(finished)}

    def failed(self, output: Sequence[dict[str, Any]], failure: Failure) -> dict[str, Any]:
        """The response of a turn that ended badly."""
        code = failure.code or ("server_error" if failure.status >= 500 else "invalid_prompt")
        return self.body("failed", output) | {"error": {"code": code, "message": failure.message}}


def status_of(finished: Finished) -> str:
    """How the response ended."""
    return "incomplete" if finished.finish_reason == "length" else "completed"


def response_body(
    head: ResponseHead,
    answer: Answer,
    finished: Finished,
    wires: Mapping[str, WireTool],
    *,
    shows_reasoning: bool,
    new_id: NewId = random_id,
) -> dict[str, Any]:
    """The whole answer of a request that does not stream."""
    output = []
    if answer.reasoning and shows_reasoning:
        closed = finished.thinking_closed
        output.append(
            reasoning_item(new_id("rs_"), answer.reasoning, "completed" if closed else "incomplete")
        )
    if answer.text:
        whole = finished.calls or finished.finish_reason != "length"
        output.append(message_item(new_id("msg_"), answer.text, "completed" if whole else "incomplete"))
    for call in finished.calls:
        item = CallItem.of(call.id, call.name, wires, new_id)
        output.append(item.body(call.arguments, "completed"))
    return head.finished(output, finished)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.prompt - usage.cached,
        },
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
