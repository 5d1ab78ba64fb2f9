"""What every endpoint works with: one value, handed to the app when it is created."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from starlette.requests import Request

from apps.serve.jobs import EventChannel, Job
from apps.serve.log import ServerLog
from apps.serve.middleware import InFlight
from apps.serve.settings import ServerSettings
from apps.serve.turn_request import Ask, ModelFacts, TurnRequest, prepare
from apps.serve.worker import InferenceWorker


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts of a running server. `clock` gives seconds since 1970."""

    worker: InferenceWorker
    settings: ServerSettings
    log: ServerLog
    in_flight: InFlight
    clock: Callable[[], float]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def model(self) -> ModelFacts:
        return self.worker.model

    def next_number(self) -> int:
        """The process-wide counter of answers."""
        return next(self._numbers)

    def prepare(self, ask: Ask, request_id: str) -> TurnRequest:
        """Render and tokenise; may take long, so not for the event loop's thread."""
        return prepare(ask, request_id, self.model, self.settings, self.worker.tool_memory)

    def submit(self, turn: TurnRequest) -> Job:
        """Queue a turn. Raises RequestError when the server takes no more."""
        job = Job(turn, EventChannel(asyncio.get_running_loop(), eager=turn.ask.stream))
        self.worker.submit(job)
        return job


def server(request: Request) -> ServerContext:
    context = request.app.state.server
    assert isinstance(context, ServerContext)
    return context
