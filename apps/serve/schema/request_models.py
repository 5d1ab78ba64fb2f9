"""Which models read the bodies of which endpoint: the table that tells the fields of an endpoint.

What is in none of its models is skipped there. Knows no HTTP beyond the paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from apps.serve.schema.chat import ChatRequest
from apps.serve.schema.completions import CompletionRequest
from apps.serve.schema.fields import LenientModel
from apps.serve.schema.messages import MessagesRequest
from apps.serve.schema.responses import ResponsesRequest
from apps.serve.schema.tokens import DetokenizeRequest, TokenizeRequest

REQUEST_MODELS: Final[Mapping[str, tuple[type[LenientModel], ...]]] = {
    "/v1/chat/completions": (ChatRequest,),
    "/v1/completions": (CompletionRequest,),
    "/v1/responses": (ResponsesRequest,),
    "/v1/messages": (MessagesRequest,),
    "/v1/messages/count_tokens": (MessagesRequest,),
    # A text, or a whole chat.
    "/v1/tokenize": (TokenizeRequest, ChatRequest),
    "/v1/detokenize": (DetokenizeRequest,),
}


def skipped_fields(path: str, body: Iterable[str]) -> list[str]:
    """The members of a `body` sent to the endpoint at `path` that it does not read."""
    models = REQUEST_MODELS.get(path, ())
    return [name for name in body if not any(name in model.model_fields for model in models)]
