"""A whole answer, gathered from a job's events for requests that do not stream. Knows no dialect."""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from apps.serve.jobs import Emitted, Failed, Finished, Job, Restarted
from apps.serve.sse import watch_disconnect
from shared.text.events import TextDelta, TextScores, ThinkingDelta


class Answer:
    """Reasoning and text so far."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self.scores: list[TextScores] = []  # of its tokens, where they were asked for

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def text(self) -> str:
        return "".join(self._text)

    def add(self, emitted: Emitted) -> None:
        for event in emitted.events:
            match event:
                case ThinkingDelta(text):
                    self._reasoning.append(text)
                case TextDelta(text):
                    self._text.append(text)
                case TextScores():
                    self.scores.append(event)
                case _:
                    # Calls come whole with the end of the turn.
                    pass


async def gather(job: Job, receive: Receive) -> tuple[Answer, Finished | Failed]:
    """Wait for the end of a turn. Raises ClientLeft as soon as the client goes away."""
    watcher = asyncio.ensure_future(watch_disconnect(receive))
    watcher.add_done_callback(lambda done: None if done.cancelled() else job.channel.client_left())
    answer = Answer()
    try:
        while True:
            for event in await job.channel.next():
                match event:
                    case Emitted():
                        answer.add(event)
                    case Restarted():
                        answer = Answer()
                    case Finished() | Failed():
                        return answer, event
                    case _:
                        pass
    finally:
        watcher.cancel()
