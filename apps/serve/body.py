"""Reading a request's body within its limits, before any endpoint sees the request.

A declared length over the limit is refused unread, a chunked body as soon as it passes the limit, one that
comes too slowly with 408. Endpoints get the body in one piece; what they receive next is the disconnect.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.serve.errors import ClientLeft, Failure, Refused
from apps.serve.refusal import refuse_unread
from apps.serve.settings import Limits, Timing


class BodyLimit:
    """ASGI middleware; reads the body of every request that has one."""

    def __init__(self, app: ASGIApp, *, limits: Limits, timing: Timing) -> None:
        self._app = app
        self._limits = limits
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_declared(scope)
            body = await self._read(receive)
        except Refused as refused:
            await refuse_unread(refused.failure, scope, receive, send, self._timing)
            return
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        await self._app(scope, replay, send)

    def _check_declared(self, scope: Scope) -> None:
        for name, value in scope["headers"]:
            # Deeper than this the server below has refused what is not a number.
            if name == b"content-length" and value.isdigit() and int(value[:20]) > self._limits.body_bytes:
                raise Refused(self._too_large())

    def _too_large(self) -> Failure:
        return Failure(413, f"the request body is larger than {self._limits.body_bytes} bytes")

    async def _read(self, receive: Receive) -> bytes:
        clock = asyncio.get_running_loop().time
        started = clock()
        parts: list[bytes] = []
        size = 0
        while True:
            allowed = self._timing.body_stall + size / self._timing.body_bytes_per_second
            wait = min(self._timing.body_stall, started + allowed - clock())
            try:
                async with asyncio.timeout(max(0.0, wait)):
                    message = await receive()
            except TimeoutError:
                raise Refused(Failure(408, "the request body came too slowly")) from None
            if message["type"] == "http.disconnect":
                raise ClientLeft
            part = message.get("body", b"")
            size += len(part)
            if size > self._limits.body_bytes:
                raise Refused(self._too_large())
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)
