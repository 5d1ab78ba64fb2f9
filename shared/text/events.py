"""What a turn of the model consists of, as every front end sees it.

One stream of these events feeds the terminal, the HTTP dialects and the agent.
"""

from __future__ import annotations

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


TurnEvent = ThinkingDelta | TextDelta | ToolStart | ToolArguments | ToolEnd | ToolLost

# Why generation ended, as the turn machine is told.
EndCause = Literal["eos", "length", "stop", "tool", "cancelled"]
# What a client is told.
FinishReason = Literal["stop", "length", "tool_calls"]
