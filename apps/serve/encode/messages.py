"""Turn events as a `message` object and its stream of content blocks. Spec: chat §5.5 and §5.6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from apps.serve.encode.answer import Answer
from apps.serve.encode.arguments import arguments_object
from apps.serve.encode.usage import timings_body
from apps.serve.errors import Failure
from apps.serve.jobs import Finished, PrefillDone, Usage
from apps.serve.sse import frame
from shared.text.events import (
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolArguments,
    ToolEnd,
    ToolLost,
    ToolStart,
    TurnEvent,
)

_STOP_REASONS: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


@dataclass(frozen=True, slots=True)
class MessageHead:
    """What begins every answer. The `id` also signs its thinking, which nobody checks."""

    id: str
    model: str

    def body(self, content: list[dict[str, Any]], stop: dict[str, Any], usage: Usage) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            **stop,
            "usage": _input_usage(usage) | _output_usage(usage),
        }


class MessageStream:
    """`StreamEncoder` of one streamed message: its blocks follow one another and never overlap."""

    def __init__(self, head: MessageHead) -> None:
        self._head = head
        self._open: Literal["thinking", "text", "tool"] | None = None
        self._index = -1
        self._answered = False

    def prefilled(self, done: PrefillDone) -> bytes:
        message = self._head.body([], {"stop_reason": None, "stop_sequence": None}, done.usage)
        return _event("message_start", message=message)

    def waiting(self) -> bytes:
        return _event("ping")

    def held(self) -> bytes:
        return _event("ping")

    def emitted(self, events: Sequence[TurnEvent]) -> bytes:
        return b"".join(map(self._piece, events))

    def finished(self, finished: Finished) -> bytes:
        end = self._close()
        if not self._answered:
            end += self._begin("text", _text_block("")) + self._close()
        usage = _output_usage(finished.usage)
        timings = timings_body(finished)
        last = _event("message_delta", delta=_stop(finished), usage=usage, timings=timings)
        return end + last + _event("message_stop")

    def failed(self, failure: Failure) -> bytes:
        return frame(failure.anthropic(), event="error")

    def _piece(self, event: TurnEvent) -> bytes:
        match event:
            case ThinkingDelta(text):
                start = self._go_on("thinking", _thinking_block("", ""))
                return start + self._delta("thinking_delta", thinking=text)
            case TextDelta(text):
                return self._go_on("text", _text_block("")) + self._delta("text_delta", text=text)
            case ToolStart(_, call_id, name):
                return self._close() + self._begin("tool", _tool_block(call_id, name, {}))
            case ToolArguments(_, fragment):
                return self._delta("input_json_delta", partial_json=fragment)
            case ToolEnd() | ToolLost():
                # The JSON of a lost call stays open, so that no client can run it; its block does not.
                return self._close()
            case _:
                return b""

    def _go_on(self, kind: Literal["thinking", "text"], block: dict[str, Any]) -> bytes:
        """Whatever it takes to have a block of this kind open."""
        return b"" if self._open == kind else self._close() + self._begin(kind, block)

    def _begin(self, kind: Literal["thinking", "text", "tool"], block: dict[str, Any]) -> bytes:
        self._open = kind
        self._index += 1
        self._answered = self._answered or kind != "thinking"
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **fields: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        signed = self._open == "thinking"
        self._open = None
        signature = self._delta("signature_delta", signature=self._head.id) if signed else b""
        return signature + _event("content_block_stop", index=self._index)


def message_body(head: MessageHead, answer: Answer, finished: Finished) -> dict[str, Any]:
    """The whole answer of a request that does not stream."""
    content = [_thinking_block(answer.reasoning, head.id)] if answer.reasoning else []
    if answer.text or not finished.calls:
        content.append(_text_block(answer.text))
    content += [_tool_block(call.id, call.name, arguments_object(call.arguments)) for call in finished.calls]
    return head.body(content, _stop(finished), finished.usage) | {"timings": timings_body(finished)}


def _event(kind: str, **fields: Any) -> bytes:
    return frame({"type": kind, **fields}, event=kind)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _thinking_block(thinking: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thinking, "signature": signature}


def _tool_block(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _stop(finished: Finished) -> dict[str, Any]:
    if finished.finish_reason == "stop" and finished.matched_stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.matched_stop}
    return {"stop_reason": _STOP_REASONS[finished.finish_reason], "stop_sequence": None}


def _input_usage(usage: Usage) -> dict[str, Any]:
    """Three figures that add up to the prompt: computed and gone, computed and kept, reused."""
    return {
        "input_tokens": usage.prompt - usage.cached - usage.cache_write,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
    }


def _output_usage(usage: Usage) -> dict[str, Any]:
    return {
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }
