"""`GET /v1/models` and `/v1/models/{id}`: both names describe the one loaded model. Spec: chat §5.3.

One description for the clients of all dialects: each reads the members it knows.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apps.serve.api.context import ServerContext, server
from shared.errors import RequestError

MODEL_IDS: Final = ("deepseek-v4-flash", "deepseek-v4-pro")
_CREATED: Final = 1767225600
_CREATED_AT: Final = "2026-01-01T00:00:00Z"
# Requests may name any model; these names also choose whether the model thinks.
_ALIASES: Final = ("deepseek-chat", "deepseek-reasoner")
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
    "response_format",
    "logprobs",
    "top_logprobs",
    "frequency_penalty",
    "presence_penalty",
]


async def list_models(request: Request) -> Response:
    context = server(request)
    models = [_describe(name, context) for name in MODEL_IDS]
    # The last three are how the Anthropic family ends a list.
    page = {"has_more": False, "first_id": MODEL_IDS[0], "last_id": MODEL_IDS[-1]}
    return JSONResponse({"object": "list", "data": models} | page)


async def get_model(request: Request) -> Response:
    name = request.path_params["model"]
    if name not in (*MODEL_IDS, *_ALIASES):
        raise RequestError(
            f"no model {name[:100]!r} here: use {' or '.join(MODEL_IDS)}",
            status=404,
            param="model",
            code="model_not_found",
        )
    return JSONResponse(_describe(name, server(request)))


def _describe(name: str, context: ServerContext) -> dict[str, Any]:
    """Several names of the context size and of other facts, because each client looks for its own."""
    facts, settings = context.model, context.settings
    size = facts.context
    output = min(settings.max_tokens, size)
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": _CREATED,
        "created_at": _CREATED_AT,
        "owned_by": "ds4",
        "name": facts.name,
        "display_name": facts.name,
        "aliases": list(_ALIASES),
        "context_length": size,
        "max_model_len": size,
        "max_input_tokens": size,
        "max_output_tokens": output,
        "max_tokens": output,
        "effort_profile": facts.effort_profile,
        "architecture": {
            "modality": "text->text",
            "input_modalities": ["text"],
            "output_modalities": ["text"],
        },
        "top_provider": {
            "context_length": size,
            "max_completion_tokens": output,
            "is_moderated": False,
        },
        "supported_parameters": _SUPPORTED,
        "default_parameters": {
            "temperature": 1.0,
            "top_p": 1.0,
            "min_p": 0.05,
            "reasoning_effort": settings.effort if settings.thinking else "none",
        },
    }
