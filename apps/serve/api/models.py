"""`GET /v1/models` and `/v1/models/{id}`: both names describe the one loaded model. Spec: chat §5.3."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apps.serve.api.context import ServerContext, server
from shared.errors import RequestError

MODEL_IDS: Final = ("deepseek-v4-flash", "deepseek-v4-pro")
_CREATED: Final = 1767225600
_SUPPORTED: Final = [
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "seed",
    "stream",
    "reasoning_effort",
]


async def list_models(request: Request) -> Response:
    context = server(request)
    return JSONResponse({"object": "list", "data": [_describe(name, context) for name in MODEL_IDS]})


async def get_model(request: Request) -> Response:
    name = request.path_params["model"]
    if name not in MODEL_IDS:
        raise RequestError(
            f"no model {name[:100]!r} here: use {' or '.join(MODEL_IDS)}",
            status=404,
            param="model",
            code="model_not_found",
        )
    return JSONResponse(_describe(name, server(request)))


def _describe(name: str, context: ServerContext) -> dict[str, Any]:
    """Several names of the context size, because each client looks for its own."""
    size = context.model.context
    output = min(context.settings.max_tokens, size)
    return {
        "id": name,
        "object": "model",
        "created": _CREATED,
        "owned_by": "ds4",
        "name": context.model.name,
        "context_length": size,
        "max_model_len": size,
        "max_output_tokens": output,
        "effort_profile": context.model.effort_profile,
        "top_provider": {
            "context_length": size,
            "max_completion_tokens": output,
            "is_moderated": False,
        },
        "supported_parameters": _SUPPORTED,
        "default_parameters": {"temperature": 1.0, "top_p": 1.0, "min_p": 0.05},
    }
