"""`POST /v1/embeddings`: says that there are none, before a client waits for them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shared.errors import RequestError


async def embeddings(request: Request) -> Response:
    raise RequestError(
        "this server runs a model that writes text and makes no embeddings: use an embedding model for them",
        status=501,
        code="not_implemented",
    )
