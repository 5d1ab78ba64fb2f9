"""Server-sent events: framing, and the response that carries one turn to one client.

Owns the keepalive rhythm and the watch for a client that leaves. Knows no dialect: a `StreamEncoder` turns
job events into bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from starlette.types import Message, Receive, Scope, Send

from apps.serve.errors import ClientLeft, Failure
from apps.serve.jobs import Emitted, EventChannel, Failed, Finished, JobEvent, PrefillDone
from apps.serve.settings import Timing
from shared.text.events import TurnEvent


class StreamEncoder(Protocol):
    """One dialect's wire form of a streamed turn. Every method returns whole frames, perhaps none."""

    def prefilled(self, done: PrefillDone) -> bytes: ...

    def waiting(self) -> bytes:
        """A sign of life while queued or in prefill."""
        ...

    def held(self) -> bytes:
        """A sign of life while the answer is held back."""
        ...

    def emitted(self, events: Sequence[TurnEvent]) -> bytes: ...

    def finished(self, finished: Finished) -> bytes: ...

    def failed(self, failure: Failure) -> bytes: ...


def frame(data: Any, event: str | None = None) -> bytes:
    """One event holding `data` as JSON."""
    named = f"event: {event}\n" if event else ""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{named}data: {text}\n\n".encode()


def comment(text: str) -> bytes:
    """A line that every client skips."""
    return f": {text}\n\n".encode()


async def watch_disconnect(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


class TurnStream:
    """An ASGI response: headers at once, then frames as the turn goes on.

    `begin` starts the turn, once the headers are out: a prefill may hold the interpreter lock for long.
    `left` is called once if the client goes away, or stops reading, before the end.
    """

    def __init__(
        self,
        channel: EventChannel,
        encoder: StreamEncoder,
        timing: Timing,
        *,
        begin: Callable[[], None],
        left: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._encoder = encoder
        self._timing = timing
        self._begin = begin
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(watch_disconnect(receive))
        watcher.add_done_callback(self._on_watcher_done)
        ended = False
        try:
            await self._send(send, _start())
            self._begin()
            await self._pump(send)
            ended = True
        finally:
            watcher.cancel()
            if not ended:
                self._left()

    def _on_watcher_done(self, watcher: asyncio.Future[None]) -> None:
        if not watcher.cancelled():
            self._channel.client_left()

    async def _pump(self, send: Send) -> None:
        decoding = over = False
        clock = asyncio.get_running_loop().time
        last_write = clock()
        while not over:
            pause = self._timing.keepalive_decode if decoding else self._timing.keepalive_waiting
            events = await self._channel.next(max(0.0, last_write + pause - clock()))
            frames = b"".join(map(self._encode, events))
            if not frames and clock() >= last_write + pause:
                frames = self._encoder.held() if decoding else self._encoder.waiting()
            decoding = decoding or any(isinstance(event, PrefillDone) for event in events)
            over = any(isinstance(event, Finished | Failed) for event in events)
            if frames or over:
                await self._send(send, {"type": "http.response.body", "body": frames, "more_body": not over})
                last_write = clock()

    def _encode(self, event: JobEvent) -> bytes:
        match event:
            case Emitted(events):
                return self._encoder.emitted(events)
            case PrefillDone():
                return self._encoder.prefilled(event)
            case Finished():
                return self._encoder.finished(event)
            case Failed(failure):
                return self._encoder.failed(failure)
            case _:
                return b""

    async def _send(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._timing.write_timeout):
                await send(message)
        except TimeoutError:
            raise ClientLeft from None


def _start() -> Message:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    return {"type": "http.response.start", "status": 200, "headers": headers}
