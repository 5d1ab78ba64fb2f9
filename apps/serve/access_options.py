"""The options of `ds4 serve` about who may use it: keys, origins of web pages, names of the server.

Owns the options and what they mean together; knows no request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from apps.serve.api_keys import checked_key, others_can_read, read_key_file
from apps.serve.host_names import host_name, is_loopback
from apps.serve.settings import AccessSettings
from shared.errors import UsageError

_PANEL: Final = "Access"
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")

ApiKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        envvar="DS4_API_KEY",
        show_default=False,
        help="A key that requests must show, repeatable; other users here can see it: prefer a file.",
        rich_help_panel=_PANEL,
    ),
]
ApiKeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        envvar="DS4_API_KEY_FILE",
        help="File of keys, one a line.",
        rich_help_panel=_PANEL,
    ),
]
CorsOption = Annotated[
    bool,
    typer.Option(
        "--cors",
        envvar="DS4_CORS",
        help="Let web pages of any origin use the API.",
        rich_help_panel=_PANEL,
    ),
]
CorsOriginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        metavar="ORIGIN",
        envvar="DS4_CORS_ORIGIN",
        show_default=False,
        help="Let web pages of this origin use the API, for example https://chat.example.org; repeatable.",
        rich_help_panel=_PANEL,
    ),
]
AllowedHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        envvar="DS4_ALLOWED_HOST",
        show_default="this machine's own",
        help="Another name that requests may call the server by; * for any; repeatable.",
        rich_help_panel=_PANEL,
    ),
]


def access_settings(
    host: str,
    *,
    keys: Sequence[str],
    key_file: Path | None,
    any_origin: bool,
    origins: Sequence[str],
    host_names: Sequence[str],
) -> AccessSettings:
    """Who may use a server that listens on `host`. Raises UsageError for what contradicts itself or cannot
    be read."""
    if any_origin and origins:
        raise UsageError("--cors allows every origin: leave it out, or --cors-origin")
    return AccessSettings(
        keys=frozenset(
            [checked_key(key, "--api-key") for key in keys] + (read_key_file(key_file) if key_file else [])
        ),
        any_origin=any_origin,
        origins=frozenset(map(_origin, origins)),
        host_names=_host_names(host, host_names),
    )


def access_warnings(host: str, access: AccessSettings, key_file: Path | None) -> list[str]:
    """What the user should know before anybody else finds out."""
    warnings = []
    if not access.keys and not is_loopback(host):
        warnings.append(
            f"WARNING: {host} can be reached by other machines and there are no API keys: anyone who reaches "
            "it may use the model and read what it remembers; give --api-key-file FILE, or --host 127.0.0.1"
        )
    if key_file is not None and others_can_read(key_file):
        warnings.append(f"--api-key-file: other users of this machine can read it: chmod 600 {key_file}")
    return warnings


def _origin(text: str) -> str:
    """An origin as browsers send it. `*` and `null` are none: the first is --cors, the second is what pages
    of unknown origin send."""
    origin = text.lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        raise UsageError(f"--cors-origin {text[:100]}: an origin is SCHEME://HOST[:PORT], without a path")
    return origin


def _host_names(host: str, names: Sequence[str]) -> frozenset[str] | None:
    """None: not checked. What other machines can reach is checked only if the user says how it is called."""
    if "*" in names or not (names or is_loopback(host)):
        return None
    for name in names:
        if not name or host_name(name) != name.lower().rstrip("."):
            raise UsageError(f"--allowed-host {name[:100]}: give a name without scheme, port and path")
    return frozenset(map(host_name, names))
