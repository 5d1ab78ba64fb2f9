"""What surrounds every request: its id, and the last line of defence.

Pure ASGI, so that streams pass through untouched. Knows no endpoint. Spec: chat §5.1.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import MutableMapping
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.serve.errors import STOPPING, ClientLeft, Failure
from apps.serve.log import ServerLog, describe

# What a client may call its request: it ends up in log lines and headers.
_CLIENT_ID: Final = re.compile(rb"[A-Za-z0-9._:+=@/-]{1,128}")


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
    """Gives each request its id, the client's own if it sent one, and turns whatever goes wrong inside into
    one line and one reply."""

    def __init__(self, app: ASGIApp, *, log: ServerLog, in_flight: InFlight) -> None:
        self._app = app
        self._log = log
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        # The OpenAI family looks for the first name, Anthropic's for the second.
        id_headers = [(name, request_id.encode()) for name in (b"x-request-id", b"request-id")]
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._log_refusal(scope, message["status"])
                message["headers"] = [*message.get("headers", ()), *id_headers]
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
            self._log.line(f"{_name(scope)} client left req={request_id}", request=request_id)
        except Exception as error:
            self._log.error(
                f"{_name(scope)} internal error: {describe(error)} req={request_id}", request=request_id
            )
            if not started:
                await _reply(Failure(500, "internal error"), scope, receive, send_with_id)
        finally:
            self._in_flight.leave(task)

    def _log_refusal(self, scope: Scope, status: int) -> None:
        """Answered turns have their own lines; what is refused gets this one."""
        if status >= 400:
            reason, request_id = scope["state"].get("refusal", ""), scope["state"]["request_id"]
            self._log.warning(
                f"{_name(scope)} {status} {reason} req={request_id}", status=status, request=request_id
            )


def _request_id(scope: Scope) -> str:
    """The id that the client gave its request, if it is one, else a new one."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode("ascii") if _CLIENT_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"


async def _reply(failure: Failure, scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse(failure.body(scope["path"]), failure.status)(scope, receive, send)


def _name(scope: MutableMapping[str, Any]) -> str:
    return f"{scope['method']} {scope['path'][:200]}"
