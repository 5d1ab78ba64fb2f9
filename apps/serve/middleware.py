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

from apps.serve.errors import STOPPING, ClientLeft, Failure
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
    """The requests being answered, so that a shutdown can wait for them and cut what hangs."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def enter(self) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._idle.clear()
        return task

    def leave(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()


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
                self._log_refusal(scope, message["status"])
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        task = self._in_flight.enter()
        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            # Cut at the end of the server, in the middle of an upload for example.
            if not started:
                scope["state"]["refusal"] = STOPPING.message
                await _reply(STOPPING, scope, receive, send_with_id)
            raise
        except ClientLeft:
            self._log.line(f"{_name(scope)} client left req={request_id}")
        except Exception as error:
            self._log.error(f"{_name(scope)} internal error: {describe(error)} req={request_id}")
            if not started:
                await _reply(Failure(500, "internal error"), scope, receive, send_with_id)
        finally:
            self._in_flight.leave(task)

    def _log_refusal(self, scope: Scope, status: int) -> None:
        """Answered turns have their own lines; what is refused gets this one."""
        if status >= 400:
            state = scope["state"]
            reason = state.get("refusal", "")
            self._log.warning(f"{_name(scope)} {status} {reason} req={state['request_id']}")


async def _reply(failure: Failure, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse(failure.body(scope["path"]), failure.status)(scope, receive, send)


def _name(scope: MutableMapping[str, Any]) -> str:
    return f"{scope['method']} {scope['path'][:200]}"
