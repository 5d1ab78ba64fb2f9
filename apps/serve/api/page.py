"""`GET /`: the chat page, one file that brings everything with it and talks to this server only."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

PAGE_FILE: Final = Path(__file__).parents[1] / "page" / "index.html"


async def chat_page(request: Request) -> Response:
    """The same for everybody: an API key is typed into it."""
    content, policy = _page()
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return Response(content, headers=headers, media_type="text/html; charset=utf-8")


@cache
def _page() -> tuple[bytes, str]:
    """The page, and a policy under which a browser runs its script, applies its style and lets it talk to
    this server; nothing else."""
    content = PAGE_FILE.read_bytes()
    policy = (
        f"default-src 'none'; script-src {_hash(content, b'script')}; style-src {_hash(content, b'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return content, policy


def _hash(content: bytes, tag: bytes) -> str:
    """The one element of this kind, as a policy names what stands in it."""
    (inside,) = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), content, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside).digest()).decode()}'"
