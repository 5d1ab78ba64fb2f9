"""What all endpoints that generate have in common: read a turn from a body, answer it streamed or whole.

Owns what happens when the client leaves and the shape of a failure. Knows no dialect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from apps.serve.api.context import ServerContext, server
from apps.serve.encode.answer import Answer, gather
from apps.serve.errors import Failure, Refused
from apps.serve.jobs import Failed, Finished
from apps.serve.json_body import parse_object
from apps.serve.settings import ServerSettings
from apps.serve.sse import StreamEncoder, TurnStream
from apps.serve.turn_request import Ask, ModelFacts, TurnRequest
from shared.errors import ContextFullError
from shared.kv.live.prompt import Prompt

# From the members of a body to what is asked; raises RequestError.
AskParser = Callable[[dict[str, Any], ModelFacts, ServerSettings], Ask]


async def read_turn(request: Request, parse: AskParser) -> TurnRequest:
    """The turn that `request` asks for, rendered and tokenised. Raises RequestError and Refused."""
    context = server(request)
    body, request_id = await request.body(), request.state.request_id
    context.check_room()

    def read() -> TurnRequest:
        ask = _read_ask(request, body, parse)
        try:
            return context.prepare(ask, request_id, body)
        except ContextFullError as error:
            raise Refused(Failure.of(error, param=ask.input_field)) from None

    # On a worker thread: a large prompt must not stop the event loop.
    return await asyncio.to_thread(read)


async def read_prompt(request: Request, parse: AskParser) -> Prompt:
    """The prompt alone, for those who want to know its tokens; it may be too long. Raises RequestError."""
    context, body = server(request), await request.body()

    def read() -> Prompt:
        return context.render(_read_ask(request, body, parse))

    return await asyncio.to_thread(read)


def _read_ask(request: Request, body: bytes, parse: AskParser) -> Ask:
    """What is asked; what means nothing here is counted. Raises RequestError."""
    context = server(request)
    fields = parse_fields(body, context)
    ask = parse(fields, context.model, context.settings)
    context.count_skipped(request.url.path, fields)
    return ask


def parse_fields(body: bytes, context: ServerContext) -> dict[str, Any]:
    """The members of a body that must be a JSON object. Raises RequestError."""
    return parse_object(body, depth=context.settings.limits.json_depth)


async def answer_turn(
    request: Request,
    turn: TurnRequest,
    stream: Callable[[], StreamEncoder],
    whole: Callable[[Answer, Finished], dict[str, Any]],
) -> ASGIApp:
    """Run `turn`: streamed through the encoder that `stream` makes, or as the one body that `whole` makes.

    A client that leaves, in whatever phase, cancels it.
    """
    context = server(request)
    encoder = stream() if turn.ask.stream else None
    job = context.job(turn)
    if encoder is not None:
        return TurnStream(
            job.channel,
            encoder,
            context.settings.timing,
            begin=lambda: context.worker.submit(job),
            left=lambda: context.worker.cancel(job),
        )
    context.worker.submit(job)
    try:
        answer, end = await gather(job, request.receive)
    except BaseException:
        # The client has left, or the server is going down: nobody waits for the rest.
        context.worker.cancel(job)
        raise
    if isinstance(end, Failed):
        raise Refused(end.failure)
    return JSONResponse(whole(answer, end))
