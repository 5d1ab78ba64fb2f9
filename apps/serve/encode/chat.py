"""Turn events as `chat.completion` objects and chunks. Spec: chat §5.5 and §5.6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.serve.encode.answer import Answer
from apps.serve.encode.envelope import Envelope, last_frames, totals
from apps.serve.encode.logprobs import logprobs_body
from apps.serve.errors import Failure
from apps.serve.jobs import Finished, PrefillDone
from apps.serve.sse import comment, frame
from shared.text.events import TextDelta, TextScores, ThinkingDelta, ToolArguments, ToolStart, TurnEvent


class ChatStream:
    """`StreamEncoder` of one streamed chat completion."""

    def __init__(self, envelope: Envelope, *, include_usage: bool, logprobs: bool = False) -> None:
        self._envelope = envelope
        self._include_usage = include_usage
        self._logprobs = logprobs

    def prefilled(self, done: PrefillDone) -> bytes:
        return self._chunk({"role": "assistant"})

    def waiting(self) -> bytes:
        return comment("prefill")

    def held(self) -> bytes:
        return comment("working")

    def emitted(self, events: Sequence[TurnEvent]) -> bytes:
        frames, scores = [], []
        for event in events:
            if isinstance(event, TextScores):
                scores.append(event)
            elif delta := _delta(event):
                frames.append(self._chunk(delta, scores))
                scores = []
        return b"".join(frames)

    def finished(self, finished: Finished) -> bytes:
        last = self._envelope.wrap(_CHUNK, [_choice({}, finished.finish_reason)])
        return last_frames(last, finished, include_usage=self._include_usage)

    def failed(self, failure: Failure) -> bytes:
        return frame(failure.openai(), event="error")

    def _chunk(self, delta: dict[str, Any], scores: Sequence[TextScores] = ()) -> bytes:
        choice = _choice(delta)
        if self._logprobs:
            choice["logprobs"] = logprobs_body(scores)
        return frame(self._envelope.wrap(_CHUNK, [choice]))


_CHUNK = "chat.completion.chunk"


def _choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def completion_body(
    envelope: Envelope, answer: Answer, finished: Finished, *, logprobs: bool = False
) -> dict[str, Any]:
    """The whole answer of a request that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if finished.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in finished.calls
        ]
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finished.finish_reason}
    if logprobs:
        choice["logprobs"] = logprobs_body(answer.scores)
    return envelope.wrap("chat.completion", [choice]) | totals(finished)


def _delta(event: TurnEvent) -> dict[str, Any] | None:
    match event:
        case ThinkingDelta(text):
            return {"reasoning_content": text}
        case TextDelta(text):
            return {"content": text}
        case ToolStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case ToolArguments(index, fragment):
            return {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}
        case _:
            # How a call ended shows in its arguments: a whole object, or JSON that stays open.
            return None
