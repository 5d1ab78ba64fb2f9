"""Cross-origin headers: which web pages may read what the server answers. Spec: chat §5.1.

Pure ASGI, so that streams pass through untouched. Keeps nobody out; that is the guard's business.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.serve.settings import AccessSettings

_Headers = list[tuple[bytes, bytes]]

_FOR_ALLOWED: Final[_Headers] = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    # The wildcard covers everything but Authorization, which must be named.
    (b"access-control-allow-headers", b"Authorization, x-api-key, anthropic-version, content-type, *"),
    (b"access-control-expose-headers", b"x-request-id, request-id, retry-after"),
]


class CrossOrigin:
    """Answers every OPTIONS with 204, and lets pages of the allowed origins read every reply."""

    def __init__(self, app: ASGIApp, *, access: AccessSettings) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = self._headers(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        if scope["method"] == "OPTIONS":
            await send_with_headers({"type": "http.response.start", "status": 204, "headers": []})
            await send_with_headers({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send_with_headers)

    def _headers(self, scope: Scope) -> _Headers:
        if self._access.any_origin:
            return [(b"access-control-allow-origin", b"*"), *_FOR_ALLOWED]
        if not self._access.origins:
            return []
        # Caches must not give one origin's answer to another.
        headers: _Headers = [(b"vary", b"Origin")]
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        if origin.decode("latin-1").lower() in self._access.origins:
            headers += [(b"access-control-allow-origin", origin), *_FOR_ALLOWED]
        return headers
