"""`POST /v1/chat/completions`, streamed or whole."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from apps.serve.api.context import ServerContext, server
from apps.serve.encode.answer import gather
from apps.serve.encode.chat import ChatStream, Envelope, completion_body
from apps.serve.jobs import Failed
from apps.serve.json_body import parse_object
from apps.serve.schema.chat_ask import parse_chat
from apps.serve.sse import TurnStream
from apps.serve.turn_request import TurnRequest


async def chat_completions(request: Request) -> ASGIApp:
    context = server(request)
    # On a worker thread: a large prompt must not stop the event loop.
    turn = await asyncio.to_thread(_parse, await request.body(), context, request.state.request_id)
    envelope = Envelope(f"chatcmpl-{context.next_number()}", int(context.clock()), turn.ask.model)
    job = context.job(turn)
    if turn.ask.stream:
        encoder = ChatStream(envelope, include_usage=turn.ask.include_usage)
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
        request.state.refusal = end.failure.message
        return JSONResponse(end.failure.openai(), end.failure.status)
    return JSONResponse(completion_body(envelope, answer, end))


def _parse(body: bytes, context: ServerContext, request_id: str) -> TurnRequest:
    fields = parse_object(body, depth=context.settings.limits.json_depth)
    ask = parse_chat(fields, context.model, context.settings)
    return context.prepare(ask, request_id, body)
