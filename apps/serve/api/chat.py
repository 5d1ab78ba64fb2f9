"""`POST /v1/chat/completions`, streamed or whole."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from apps.serve.api.context import server
from apps.serve.api.turn_endpoint import answer_turn, read_turn
from apps.serve.encode.chat import ChatStream, completion_body
from apps.serve.encode.envelope import Envelope
from apps.serve.schema.chat_ask import parse_chat


async def chat_completions(request: Request) -> ASGIApp:
    context = server(request)
    turn = await read_turn(request, parse_chat)
    envelope = Envelope(f"chatcmpl-{context.next_number()}", int(context.clock()), turn.ask.model)
    logprobs = turn.ask.generation.top_logprobs is not None
    return await answer_turn(
        request,
        turn,
        stream=lambda: ChatStream(envelope, include_usage=turn.ask.include_usage, logprobs=logprobs),
        whole=lambda answer, finished: completion_body(envelope, answer, finished, logprobs=logprobs),
    )
