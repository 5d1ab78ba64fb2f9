"""`POST /v1/completions`, streamed or whole."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from apps.serve.api.context import server
from apps.serve.api.turn_endpoint import answer_turn, read_turn
from apps.serve.encode.completions import CompletionStream, text_completion_body
from apps.serve.encode.envelope import Envelope
from apps.serve.schema.completions import parse_completion


async def completions(request: Request) -> ASGIApp:
    context = server(request)
    turn = await read_turn(request, parse_completion)
    envelope = Envelope(f"cmpl-{context.next_number()}", int(context.clock()), turn.ask.model)
    return await answer_turn(
        request,
        turn,
        stream=lambda: CompletionStream(
            envelope, thinking=turn.thinking, include_usage=turn.ask.include_usage
        ),
        whole=lambda answer, finished: text_completion_body(
            envelope, answer, finished, thinking=turn.thinking
        ),
    )
