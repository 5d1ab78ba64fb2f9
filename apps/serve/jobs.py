"""A turn on its way: what the worker is asked to do and what it tells the event loop.

`Job` belongs to both threads, `EventChannel` is the bridge between them. Knows no dialect and no engine.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from apps.serve.errors import ClientLeft, Failure
from apps.serve.turn_request import TurnRequest
from shared.text.events import FinishReason, TurnEvent
from shared.text.messages import ToolCall


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn. `cached` of the `prompt` tokens were reused, `cache_write` of the others lie within
    a checkpoint or a save that this turn made; `reasoning` is part of `completion`."""

    prompt: int
    cached: int
    cache_write: int = 0
    completion: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of wall clock that a turn spent on its prompt, reading saved states included, and on its
    answer."""

    prefill: float = 0.0
    decode: float = 0.0


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """The prompt is in the state; the next event is the answer's first."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Restarted:
    """What was emitted so far is void: the turn is generated again (whole answers only)."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """More of the answer."""

    events: Sequence[TurnEvent]


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn ended well. `thinking_closed`: the model ended its reasoning itself, or never began any."""

    finish_reason: FinishReason
    matched_stop: str | None
    usage: Usage
    calls: Sequence[ToolCall]
    thinking_closed: bool = True
    timings: Timings = Timings()


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn ended badly; nothing more comes."""

    failure: Failure


JobEvent = PrefillDone | Restarted | Emitted | Finished | Failed


class JobPhase(Enum):
    """How far the worker came with a job."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"


class EventChannel:
    """Events from one worker thread to one task of an event loop, in order, never blocking the sender.

    `eager`: pieces of the answer wake the receiver; otherwise they wait for the next event of another
    kind, which spares two threads a switch for every token.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, eager: bool) -> None:
        self._loop = loop
        self._eager = eager
        self._events: deque[JobEvent] = deque()
        self._lock = threading.Lock()
        self._ready = asyncio.Event()
        self._wake_sent = False
        self._left = False

    def put(self, event: JobEvent) -> None:
        """From any thread."""
        with self._lock:
            self._events.append(event)
            if self._wake_sent or (isinstance(event, Emitted) and not self._eager):
                return
            self._wake_sent = True
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            # The loop is closed: the server is gone and nobody waits.
            return

    def client_left(self) -> None:
        """From the event loop: whoever waits gets ClientLeft."""
        self._left = True
        self._ready.set()

    async def next(self, timeout: float | None = None) -> list[JobEvent]:
        """All events that have come, at least one; none after `timeout` seconds. Raises ClientLeft."""
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError:
            return []
        if self._left:
            raise ClientLeft
        with self._lock:
            events = list(self._events)
            self._events.clear()
            self._wake_sent = False
            self._ready.clear()
        return events


class Job:
    """One turn in the worker's hands. The phase is written by the worker, `cancel` called by anyone."""

    def __init__(self, request: TurnRequest, channel: EventChannel) -> None:
        self.request = request
        self.channel = channel
        self.phase = JobPhase.WAITING
        self.created = time.monotonic()
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def fail(self, failure: Failure) -> None:
        """Tell whoever waits. Only the first end counts, so this may come before the worker's own."""
        self.channel.put(Failed(failure))
