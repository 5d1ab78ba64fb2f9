"""`GET /metrics`: the server's counters for Prometheus; answers during a generation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from apps.serve.api.context import server
from apps.serve.metrics import CONTENT_TYPE


async def metrics(request: Request) -> Response:
    return Response(server(request).worker.metrics.text(), headers={"content-type": CONTENT_TYPE})
