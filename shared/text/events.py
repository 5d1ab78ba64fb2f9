"""What a turn of the model consists of, as every front end sees it.

One stream of these events feeds the terminal, the HTTP dialects and the agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More reasoning text; never holds control text."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More answer text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A tool call begins; `index` counts from 0 within the turn."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """The next fragment of a call's arguments, JSON text."""

    index: int
    fragment: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """The call is whole: the joined fragments are one JSON object."""

    index: int


@dataclass(frozen=True, slots=True)
class ToolLost:
    """A call that had started cannot be trusted and must not run; its JSON stays open."""

    index: int


@dataclass(frozen=True, slots=True)
class TokenScore:
    """The bytes of a token, its natural log probability, and the same of the best tokens at its place."""

    data: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TextScores:
    """The tokens of the text that the next delta ends with, where a client asked what they were worth.
    `thinking`: of the reasoning, else of the answer."""

    thinking: bool
    tokens: tuple[TokenScore, ...]


TurnEvent = ThinkingDelta | TextDelta | ToolStart | ToolArguments | ToolEnd | ToolLost | TextScores

# Why generation ended, as the turn machine is told.
EndCause = Literal["eos", "length", "stop", "tool", "cancelled"]
# What a client is told.
FinishReason = Literal["stop", "length", "tool_calls"]


def joined(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """The same events with neighbouring deltas of one kind made one."""
    result: list[TurnEvent] = []
    pieces: list[str] = []
    for event in events:
        last = result[-1] if result else None
        if type(event) is not type(last) or not _continues(last, event):
            _close(result, pieces)
            result.append(event)
        pieces.append(_piece(event))
    _close(result, pieces)
    return result


def _continues(last: TurnEvent | None, event: TurnEvent) -> bool:
    if isinstance(last, ToolArguments) and isinstance(event, ToolArguments):
        return last.index == event.index
    return isinstance(event, ThinkingDelta | TextDelta)


def _piece(event: TurnEvent) -> str:
    if isinstance(event, ToolArguments):
        return event.fragment
    return event.text if isinstance(event, ThinkingDelta | TextDelta) else ""


def _close(result: list[TurnEvent], pieces: list[str]) -> None:
    """Give the last event everything that was said in its kind."""
    if len(pieces) > 1:
        last = result[-1]
        text = "".join(pieces)
        if isinstance(last, ToolArguments):
            result[-1] = ToolArguments(last.index, text)
        elif isinstance(last, ThinkingDelta | TextDelta):
            result[-1] = type(last)(text)
    pieces.clear()
