"""Turn events as `text_completion` objects: raw text, with thinking and its end mark in it.

Spec: chat §5.4 to §5.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from apps.serve.encode.answer import Answer
from apps.serve.encode.envelope import Envelope, last_frames, totals
from apps.serve.errors import Failure
from apps.serve.jobs import Finished, PrefillDone
from apps.serve.sse import comment, frame
from shared.text.events import TextDelta, ThinkingDelta, TurnEvent
from shared.text.marks import THINK_END

_OBJECT: Final = "text_completion"


class CompletionStream:
    """`StreamEncoder` of one streamed completion; `thinking`: the prompt ended in the mark that opens it."""

    def __init__(self, envelope: Envelope, *, thinking: bool, include_usage: bool) -> None:
        self._envelope = envelope
        self._thinking = thinking
        self._include_usage = include_usage

    def prefilled(self, done: PrefillDone) -> bytes:
        return b""

    def waiting(self) -> bytes:
        return comment("prefill")

    def held(self) -> bytes:
        return comment("working")

    def emitted(self, events: Sequence[TurnEvent]) -> bytes:
        return b"".join(map(self._piece, events))

    def finished(self, finished: Finished) -> bytes:
        end = self._end_thinking() if finished.thinking_closed else b""
        last = self._envelope.wrap(_OBJECT, [_choice("", finished.finish_reason)])
        return end + last_frames(last, finished, include_usage=self._include_usage)

    def failed(self, failure: Failure) -> bytes:
        return frame(failure.openai(), event="error")

    def _piece(self, event: TurnEvent) -> bytes:
        match event:
            case ThinkingDelta(text):
                return self._text(text)
            case TextDelta(text):
                return self._end_thinking() + self._text(text)
            case _:
                # Without tools there are no calls.
                return b""

    def _end_thinking(self) -> bytes:
        if not self._thinking:
            return b""
        self._thinking = False
        return self._text(THINK_END)

    def _text(self, text: str) -> bytes:
        return frame(self._envelope.wrap(_OBJECT, [_choice(text, None)]))


def text_completion_body(
    envelope: Envelope, answer: Answer, finished: Finished, *, thinking: bool
) -> dict[str, Any]:
    """The whole answer of a request that does not stream."""
    end = THINK_END if thinking and finished.thinking_closed else ""
    text = answer.reasoning + end + answer.text
    return envelope.wrap(_OBJECT, [_choice(text, finished.finish_reason)]) | totals(finished)


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": 0, "finish_reason": finish_reason}
