"""Answering a request whose body was not read, so that its sender sees the answer.

Knows no reason to refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from apps.serve.errors import Failure
from apps.serve.settings import Timing


async def refuse_unread(
    failure: Failure,
    scope: Scope,
    receive: Receive,
    send: Send,
    timing: Timing,
    *,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer, then read and drop for a moment what the client still sends: a connection that is closed
    under unread data is reset, and the client would never see the answer."""
    scope["state"]["refusal"] = failure.message
    response = JSONResponse(
        failure.body(scope["path"]), failure.status, {"connection": "close", **(headers or {})}
    )
    start: Message = {
        "type": "http.response.start",
        "status": response.status_code,
        "headers": response.raw_headers,
    }
    body_over = asyncio.Event()
    drained = asyncio.ensure_future(_drain(receive, body_over))
    try:
        await send(start)
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timing.refusal_linger):
                await body_over.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        await asyncio.wait({drained}, timeout=timing.refusal_linger)
    finally:
        drained.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await drained


async def _drain(receive: Receive, body_over: asyncio.Event) -> None:
    """Drop messages until the client has left; says when the body is over."""
    while (message := await receive())["type"] != "http.disconnect":
        if not message.get("more_body", False):
            body_over.set()
    body_over.set()
