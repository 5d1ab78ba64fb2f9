"""What surrounds every request: CORS, a request id, and the last line of defence.

Pure ASGI, so that streams pass through untouched. Knows no endpoint. Spec: chat §5.1.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import MutableMapping
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.serve.errors import ClientLeft, Failure
from apps.serve.log import ServerLog, describe

_ALLOWED_METHODS = b"GET, POST, OPTIONS"
# The wildcard covers everything but Authorization, which must be named.
_ALLOWED_HEADERS = b"Authorization, x-api-key, anthropic-version, content-type, *"
_EXPOSED_HEADERS = b"x-request-id"


class CrossOrigin:
    """Answers every OPTIONS with 204 and, when enabled, lets pages of any origin read every reply."""

    def __init__(self, app: ASGIApp, *, enabled: bool) -> None:
        self._app = app
        self._headers = (
            [
                (b"access-control-allow-origin", b"*"),
                (b"access-control-allow-methods", _ALLOWED_METHODS),
                (b"access-control-allow-headers", _ALLOWED_HEADERS),
                (b"access-control-expose-headers", _EXPOSED_HEADERS),
            ]
            if enabled
            else []
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        if scope["method"] == "OPTIONS":
            await send_with_headers({"type": "http.response.start", "status": 204, "headers": []})
            await send_with_headers({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send_with_headers)


class InFlight:
    """Counts the requests being answered, so that a shutdown can wait for them."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        self.count += 1
        self._idle.clear()

    def leave(self) -> None:
        self.count -= 1
        if not self.count:
            self._idle.set()

    async def wait_idle(self) -> None:
        await self._idle.wait()


class RequestBoundary:
    """Gives each request its id and turns whatever goes wrong inside into one line and one reply."""

    def __init__(self, app: ASGIApp, *, log: ServerLog, in_flight: InFlight) -> None:
        self._app = app
        self._log = log
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        self._in_flight.enter()
        try:
            await self._app(scope, receive, send_with_id)
        except ClientLeft:
            self._log.line(f"{_name(scope)} client left req={request_id}")
        except Exception as error:
            self._log.error(f"{_name(scope)} internal error: {describe(error)} req={request_id}")
            if not started:
                body = Failure(500, "internal error").body(scope["path"])
                await JSONResponse(body, 500)(scope, receive, send_with_id)
        finally:
            self._in_flight.leave()


def _name(scope: MutableMapping[str, Any]) -> str:
    return f"{scope['method']} {scope['path']}"
