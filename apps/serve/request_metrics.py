"""Counts requests and their time by endpoint and status. Pure ASGI; reads no body."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.serve.metrics import ServerMetrics

# How a request is counted whose client left before there was an answer.
_CLIENT_LEFT = 499


class RequestMetrics:
    """`endpoints` are the paths that are counted under their own name; a `{` ends a path's fixed part."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServerMetrics,
        endpoints: Collection[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._endpoints = frozenset(endpoints)
        self._open_ended = [path for path in endpoints if "{" in path]
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, started = _CLIENT_LEFT, self._clock()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._metrics.request(self._endpoint(scope["path"]), status, self._clock() - started)

    def _endpoint(self, path: str) -> str:
        """What clients ask for beyond our endpoints is one label, or they could make up any number."""
        if path in self._endpoints:
            return path
        return next((name for name in self._open_ended if path.startswith(name.partition("{")[0])), "other")
