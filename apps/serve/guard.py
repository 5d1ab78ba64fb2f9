"""Who may use the server: requests without a key, under a foreign name or from a foreign page end here.

A web page can point a name of its own at this machine (DNS rebinding) and so reach a server that listens here
only; its requests then carry that name. Pure ASGI; knows no endpoint but those that are open to all.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from apps.serve.api_keys import is_known, shown_keys
from apps.serve.errors import Failure
from apps.serve.host_names import address, host_name, is_local_name
from apps.serve.refusal import refuse_unread
from apps.serve.settings import AccessSettings, Timing

# Probes ask without a key, and the page must load before anybody can type one into it.
OPEN_PATHS: Final = frozenset({"/", "/health", "/ready"})
_SHOWN: Final = 100


class AccessGuard:
    """Lets through what the settings allow, and answers the rest without reading its body."""

    def __init__(self, app: ASGIApp, *, access: AccessSettings, timing: Timing) -> None:
        self._app = app
        self._access = access
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure = self._refusal(scope) if scope["type"] == "http" else None
        if failure is None:
            await self._app(scope, receive, send)
            return
        headers = {"www-authenticate": "Bearer"} if failure.status == 401 else {}
        await refuse_unread(failure, scope, receive, send, self._timing, headers=headers)

    def _refusal(self, scope: Scope) -> Failure | None:
        if self._access.host_names is not None:
            host, origin = _header(scope, b"host"), _header(scope, b"origin")
            if host is not None and not self._is_ours(name := host_name(host)):
                return Failure(
                    421, f"this server is not called {name[:_SHOWN]!r}: allow the name with --allowed-host"
                )
            if origin is not None and not self._may_come_from(origin, host):
                return Failure(
                    403,
                    f"pages of {origin[:_SHOWN]!r} may not use this server: allow them with --cors-origin",
                )
        if self._access.keys and scope["path"] not in OPEN_PATHS:
            return self._without_key(scope)
        return None

    def _without_key(self, scope: Scope) -> Failure | None:
        shown = list(shown_keys(scope["headers"]))
        if any(is_known(key, self._access.keys) for key in shown):
            return None
        how = "send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`"
        said = "this is not an API key of this server" if shown else f"this server asks for an API key: {how}"
        return Failure(401, said, code="invalid_api_key")

    def _is_ours(self, name: str) -> bool:
        """An address says which machine is meant; only a name can have been turned to this one."""
        return is_local_name(name) or address(name) is not None or name in (self._access.host_names or ())

    def _may_come_from(self, origin: str, host: str | None) -> bool:
        """The page was loaded from here, from this machine or from an origin that is allowed. Programs that
        are no pages of the web (`app://`, `vscode-webview://`) run here because the user installed them."""
        access = self._access
        scheme, _, authority = origin.lower().partition("://")
        if access.any_origin or origin.lower() in access.origins or authority == (host or "").lower():
            return True
        if origin == "null" or scheme in ("http", "https"):
            name = host_name(authority)
            numeric = address(name)
            local = is_local_name(name) or (numeric is not None and numeric.is_loopback)
            return local or name in (access.host_names or ())
        return True


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1").strip() for key, value in scope["headers"] if key == name), None)
