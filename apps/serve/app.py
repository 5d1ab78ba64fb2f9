"""The ASGI application as a value, made from explicit parts. Owns routes and error replies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from apps.serve.api.chat import chat_completions
from apps.serve.api.completions import completions
from apps.serve.api.context import ServerContext
from apps.serve.api.embeddings import embeddings
from apps.serve.api.health import health, ready
from apps.serve.api.messages import count_tokens, messages
from apps.serve.api.metrics import metrics
from apps.serve.api.models import get_model, list_models
from apps.serve.api.page import chat_page
from apps.serve.api.responses import responses
from apps.serve.api.tokens import detokenize, tokenize
from apps.serve.body import BodyLimit
from apps.serve.cors import CrossOrigin
from apps.serve.errors import Failure, Refused
from apps.serve.gauges import ServerGauges
from apps.serve.guard import AccessGuard
from apps.serve.middleware import InFlight, RequestBoundary
from apps.serve.request_metrics import RequestMetrics
from apps.serve.settings import ServerSettings
from apps.serve.worker import InferenceWorker
from shared.errors import RequestError


def create_app(
    worker: InferenceWorker, settings: ServerSettings, *, clock: Callable[[], float] = time.time
) -> Starlette:
    """The application around a started `worker`. `clock` stamps answers, in seconds since 1970."""
    in_flight = InFlight()
    worker.metrics.watch(ServerGauges(worker, in_flight))
    routes = [
        Route("/", chat_page),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
        Route("/v1/models", list_models),
        Route("/v1/models/{model:path}", get_model),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
        Route("/v1/tokenize", tokenize, methods=["POST"]),
        Route("/v1/detokenize", detokenize, methods=["POST"]),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(CrossOrigin, access=settings.access),
            Middleware(RequestMetrics, metrics=worker.metrics, endpoints=[route.path for route in routes]),
            Middleware(RequestBoundary, log=worker.log, in_flight=in_flight),
            Middleware(AccessGuard, access=settings.access, timing=settings.timing),
            Middleware(BodyLimit, limits=settings.limits, timing=settings.timing),
        ],
        exception_handlers={
            RequestError: _wrong_request,
            Refused: _refused,
            HTTPException: _no_such_route,
        },
    )
    # A path with a slash too many is not ours; a redirect would go wherever the Host header says.
    app.router.redirect_slashes = False
    app.state.server = ServerContext(worker, settings, worker.log, in_flight, clock)
    return app


async def _wrong_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _reply(request, Failure.of(error))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _reply(request, error.failure)


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path[:200]}"
    message = f"no such endpoint: {asked}" if error.status_code == 404 else f"{asked}: {error.detail}"
    return _reply(request, Failure(error.status_code, message), error.headers)


def _reply(request: Request, failure: Failure, headers: Mapping[str, str] | None = None) -> Response:
    request.state.refusal = failure.message
    path = request.url.path
    return JSONResponse(failure.body(path), failure.status_at(path), failure.headers | dict(headers or {}))
