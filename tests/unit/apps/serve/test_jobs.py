"""The bridge between the worker's thread and the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from apps.serve.errors import ClientLeft, Failure
from apps.serve.jobs import Emitted, EventChannel, Failed, JobEvent
from shared.text.events import TextDelta


def test_events_arrive_in_order_from_another_thread() -> None:
    async def receive() -> list[JobEvent]:
        channel = EventChannel(asyncio.get_running_loop(), eager=True)

        def send() -> None:
            for number in range(1000):
                channel.put(Emitted([TextDelta(str(number))]))
            channel.put(Failed(Failure(500, "end")))

        thread = threading.Thread(target=send)
        thread.start()
        events: list[JobEvent] = []
        while not (events and isinstance(events[-1], Failed)):
            more = await channel.next(5)
            assert more, "a wake-up without an event"
            events += more
        thread.join()
        return events

    events = asyncio.run(receive())
    texts = [event.events[0] for event in events if isinstance(event, Emitted)]
    assert texts == [TextDelta(str(number)) for number in range(1000)]


def test_a_timeout_gives_nothing_and_a_client_that_left_an_exception() -> None:
    async def receive() -> None:
        channel = EventChannel(asyncio.get_running_loop(), eager=True)
        assert await channel.next(0.0) == []
        assert await channel.next(0.01) == []
        channel.put(Failed(Failure(500, "x")))
        channel.client_left()
        with pytest.raises(ClientLeft):
            await channel.next(5)

    asyncio.run(receive())


def test_a_closed_loop_is_no_fault_of_the_sender() -> None:
    loop = asyncio.new_event_loop()
    channel = EventChannel(loop, eager=True)
    loop.close()
    channel.put(Failed(Failure(500, "x")))


def test_without_haste_pieces_wait_for_the_end() -> None:
    async def receive() -> None:
        channel = EventChannel(asyncio.get_running_loop(), eager=False)
        piece, end = Emitted([TextDelta("a")]), Failed(Failure(500, "x"))
        channel.put(piece)
        assert await channel.next(0.01) == []
        channel.put(end)
        assert await channel.next(5) == [piece, end]

    asyncio.run(receive())
