"""`POST /v1/responses`, streamed or whole."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from apps.serve.api.context import server
from apps.serve.api.turn_endpoint import answer_turn, read_turn
from apps.serve.encode.response_items import random_id
from apps.serve.encode.response_object import ResponseHead, response_body
from apps.serve.encode.responses import ResponseStream
from apps.serve.schema.responses_ask import ResponsesAsk, parse_responses


async def responses(request: Request) -> ASGIApp:
    context = server(request)
    turn = await read_turn(request, parse_responses)
    ask = turn.ask
    assert isinstance(ask, ResponsesAsk)
    head = ResponseHead(random_id("resp_"), int(context.clock()), ask.model, ask.sent_choice)
    return await answer_turn(
        request,
        turn,
        stream=lambda: ResponseStream(head, ask.wires, shows_reasoning=ask.shows_reasoning),
        whole=lambda answer, finished: response_body(
            head, answer, finished, ask.wires, shows_reasoning=ask.shows_reasoning
        ),
    )
