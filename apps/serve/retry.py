"""A second attempt after a tool call that could not be read: what the model is told. Spec: chat §3.7."""

from __future__ import annotations

from typing import Final

from apps.serve.turn_request import TurnRequest
from shared.text import marks
from shared.text.messages import Message
from shared.text.segments import Segment, SegmentKind, join
from shared.text.template import render_tail

_ERROR: Final = (
    "The tool call was malformed and was not executed. Send a valid tool call in the format below, or answer "
    "without a tool call."
)
_TURN_MARKS: Final = tuple(mark.encode() for mark in (marks.USER, marks.ASSISTANT, marks.REMINDER))


def retry_suffix(request: TurnRequest) -> list[Segment]:
    """What follows the failed attempt in the live session: its end, the error as a tool result with the
    system text as a reminder, and the marks of the next attempt."""
    reminder = _system_text(request)
    text = f"{_ERROR}\n\n{reminder}" if reminder else _ERROR
    return render_tail([Message("tool", text)], effort=request.ask.effort)


def _system_text(request: TurnRequest) -> str:
    """The prompt between its begin mark and its first turn."""
    region: list[Segment] = []
    for segment in request.prompt.segments[1:]:
        if segment.kind is SegmentKind.CONTROL and segment.data.startswith(_TURN_MARKS):
            return join(region).decode("utf-8", "replace")
        region.append(segment)
    return ""
