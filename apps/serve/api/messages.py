"""`POST /v1/messages`, streamed or whole, and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from apps.serve.api.turn_endpoint import answer_turn, read_prompt, read_turn
from apps.serve.encode.messages import MessageHead, MessageStream, message_body
from apps.serve.schema.messages_ask import parse_messages


async def messages(request: Request) -> ASGIApp:
    turn = await read_turn(request, parse_messages)
    head = MessageHead(f"msg_{secrets.token_hex(12)}", turn.ask.model)
    return await answer_turn(
        request,
        turn,
        stream=lambda: MessageStream(head),
        whole=lambda answer, finished: message_body(head, answer, finished),
    )


async def count_tokens(request: Request) -> Response:
    """The tokens of the prompt that the same body would be answered with."""
    prompt = await read_prompt(request, parse_messages)
    return JSONResponse({"input_tokens": len(prompt.tokens)})
