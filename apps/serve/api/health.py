"""`GET /health`: is the process alive and what is it doing; `GET /ready`: may it be sent requests.

Both answer during a generation.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apps.serve.api.context import server


async def health(request: Request) -> Response:
    worker = server(request).worker
    return JSONResponse(
        {
            "status": "stopping" if worker.stopping else "ok",
            "model": worker.model.id,
            "context_length": worker.model.context,
            "busy": worker.busy,
            "running": worker.running,
            "queued": worker.queued,
        }
    )


async def ready(request: Request) -> Response:
    """503 once the server is stopping; before the model is loaded nothing answers at all."""
    stopping = server(request).worker.stopping
    return JSONResponse({"status": "stopping" if stopping else "ready"}, 503 if stopping else 200)
