"""What every endpoint works with: one value, handed to the app when it is created."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from starlette.requests import Request

from apps.serve.errors import Refused
from apps.serve.jobs import EventChannel, Job
from apps.serve.log import ServerLog
from apps.serve.middleware import InFlight
from apps.serve.schema.request_models import skipped_fields
from apps.serve.settings import ServerSettings
from apps.serve.tool_results import check_results
from apps.serve.turn_request import Ask, ModelFacts, TurnRequest, prepare, render
from apps.serve.worker import InferenceWorker
from shared.kv.live.prompt import Prompt


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

    def count_skipped(self, path: str, body: Iterable[str]) -> None:
        """Note which members of a `body` sent to `path` mean nothing here."""
        self.worker.metrics.ignored(path, skipped_fields(path, body))

    def render(self, ask: Ask) -> Prompt:
        """The prompt of `ask`, however long; may take long, so not for the event loop's thread."""
        worker = self.worker
        return render(ask, self.model, self.settings, worker.tool_memory, worker.store)[0]

    def prepare(self, ask: Ask, request_id: str, body: bytes) -> TurnRequest:
        """Render and tokenise; may take long, so not for the event loop's thread. Raises RequestError for
        results of tools whose calls nobody knows."""
        traced = body if self.worker.trace is not None else None
        worker = self.worker
        if ask.binds_calls:
            check_results(ask.messages, worker.knows_calls, field=ask.input_field)
        return prepare(ask, request_id, self.model, self.settings, worker.tool_memory, traced, worker.store)

    def job(self, turn: TurnRequest) -> Job:
        """A turn with a place at the worker, to be submitted or cancelled. Raises Refused once the server is
        stopping, and when too many wait."""
        job = Job(turn, EventChannel(asyncio.get_running_loop(), eager=turn.ask.stream))
        refusal = self.worker.admit(job)
        if refusal is not None:
            raise Refused(refusal)
        return job

    def check_room(self) -> None:
        """Before the work that a request makes: raises Refused if `job` would."""
        refusal = self.worker.refusal()
        if refusal is not None:
            raise Refused(refusal)


def server(request: Request) -> ServerContext:
    context = request.app.state.server
    assert isinstance(context, ServerContext)
    return context
