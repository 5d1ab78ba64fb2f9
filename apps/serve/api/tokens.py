"""`POST /v1/tokenize` and `/v1/detokenize`: texts and whole chat prompts as the model's token ids, and back.

They need no turn and no session, so they answer while the model is busy.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apps.serve.api.context import ServerContext, server
from apps.serve.api.turn_endpoint import parse_fields
from apps.serve.schema.chat_ask import parse_chat
from apps.serve.schema.fields import validate
from apps.serve.schema.tokens import DetokenizeRequest, TokenizeRequest
from shared.errors import RequestError


async def tokenize(request: Request) -> Response:
    """Of a text, or of a chat body: then the prompt that it would be answered with."""
    context = server(request)
    tokens = await asyncio.to_thread(_tokens, await request.body(), context, request.url.path)
    size = context.model.context
    return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": size})


async def detokenize(request: Request) -> Response:
    """Bytes that are no text become U+FFFD."""
    text = await asyncio.to_thread(_text, await request.body(), server(request))
    return JSONResponse({"content": text})


def _tokens(body: bytes, context: ServerContext, path: str) -> list[int]:
    fields = parse_fields(body, context)
    context.count_skipped(path, fields)
    if fields.get("messages") is not None:
        return context.render(parse_chat(fields, context.model, context.settings)).tokens
    asked = validate(TokenizeRequest, fields)
    if asked.text is None:
        raise RequestError("content: send a text, or the messages of a chat", param="content")
    tokenizer = context.model.tokenizer
    return (tokenizer.encode_rendered if asked.parse_special else tokenizer.encode_text)(asked.text)


def _text(body: bytes, context: ServerContext) -> str:
    tokenizer = context.model.tokenizer
    tokens = validate(DetokenizeRequest, parse_fields(body, context)).tokens
    for index, token in enumerate(tokens):
        if not 0 <= token < tokenizer.vocabulary_size:
            last = tokenizer.vocabulary_size - 1
            raise RequestError(f"tokens.{index}: no such token, ids are 0 to {last}", param="tokens")
    return tokenizer.decode(tokens).decode("utf-8", "replace")
