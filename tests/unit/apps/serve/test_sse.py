"""The response that carries a stream: what goes out, and when the turn begins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from apps.serve.encode.chat import ChatStream
from apps.serve.encode.envelope import Envelope
from apps.serve.errors import STOPPING, ClientLeft
from apps.serve.jobs import EventChannel, Failed
from apps.serve.settings import Timing
from apps.serve.sse import TurnStream


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def _stream(happened: list[str], *, send_blocks: bool = False) -> None:
    async def send(message: Message) -> None:
        if send_blocks:
            await asyncio.Event().wait()
        happened.append(message["type"])

    async def main() -> None:
        channel = EventChannel(asyncio.get_running_loop(), eager=True)

        def begin() -> None:
            happened.append("begin")
            channel.put(Failed(STOPPING))

        encoder = ChatStream(Envelope("id", 0, "m"), include_usage=False)
        stream = TurnStream(
            channel,
            encoder,
            Timing(write_timeout=0.01),
            begin=begin,
            left=lambda: happened.append("left"),
        )
        scope: Any = {"type": "http"}
        await stream(scope, _never, send)

    asyncio.run(main())


def test_the_headers_are_out_before_the_turn_begins() -> None:
    """What the turn does first may keep the event loop from running at all."""
    happened: list[str] = []
    _stream(happened)
    assert happened == ["http.response.start", "begin", "http.response.body"]


def test_a_client_that_does_not_even_take_the_headers_costs_no_turn() -> None:
    happened: list[str] = []
    with pytest.raises(ClientLeft):
        _stream(happened, send_blocks=True)
    assert happened == ["left"]
