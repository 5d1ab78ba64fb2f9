"""The inference thread: it opens the engine, runs the jobs, saves what is live, closes.

Owns the thread. Everything that touches an engine or a session happens on it; the event loop only submits,
cancels and listens. Knows no HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack

from apps.serve.errors import Failure
from apps.serve.job_queue import JobQueue
from apps.serve.jobs import Job
from apps.serve.live import Live, live_state
from apps.serve.log import ServerLog
from apps.serve.metrics import ServerMetrics
from apps.serve.run_turn import TurnTools
from apps.serve.scheduler import Scheduler
from apps.serve.settings import ServerSettings
from apps.serve.trace import ServerTrace
from apps.serve.turn_request import ModelFacts
from shared.kv.live.slots import Slots
from shared.kv.live.tool_memory import ToolMemory
from shared.kv.store.store import KvStore
from shared.session import Engine

_MODEL_IDS = {0: "deepseek-v4-flash", 1: "deepseek-v4-pro"}


class InferenceWorker:
    """Runs jobs on the live sessions, as many at once as there are sessions.

    `open_engine` is called on the worker's own thread, because a backend may bind its state to it.
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        context: int,
        settings: ServerSettings,
        log: ServerLog,
        trace: ServerTrace | None = None,
    ) -> None:
        self.settings = settings
        self.log = log
        self.trace = trace
        self.tool_memory = ToolMemory(settings.tool_memory_ids)
        self.metrics = ServerMetrics()
        self._open_engine = open_engine
        self._context = context
        self._queue = JobQueue(settings.sessions, settings.max_queue)
        self._opened = threading.Event()
        self._open_error: BaseException | None = None
        self._facts: ModelFacts | None = None
        self._store: KvStore | None = None
        self._slots: Slots | None = None
        self._thread = threading.Thread(target=self._main, name="inference", daemon=True)

    @property
    def model(self) -> ModelFacts:
        """Facts of the loaded model; valid after `start`."""
        assert self._facts is not None, "the worker was not started"
        return self._facts

    @property
    def store(self) -> KvStore | None:
        """The disk store, if there is one. Other threads may only ask it for calls."""
        return self._store

    @property
    def stopping(self) -> bool:
        return self._queue.stopping

    @property
    def queued(self) -> int:
        """Jobs that wait for their turn."""
        return self._queue.queued

    @property
    def running(self) -> int:
        """Jobs in work."""
        return self._queue.running

    @property
    def busy(self) -> bool:
        """A job is in work."""
        return self._queue.running > 0

    def knows_calls(self, calls: Collection[str]) -> bool:
        """Whether a live answer made all of `calls`; the answer may change at once."""
        return self._slots is not None and self._slots.knows_calls(calls)

    def start(self) -> ModelFacts:
        """Open engine, store and sessions; returns when they are ready. Raises what opening raised."""
        self._thread.start()
        self._opened.wait()
        if self._open_error is not None:
            self._thread.join()
            raise self._open_error
        return self.model

    def refusal(self) -> Failure | None:
        """Why one more job would be refused now, if so."""
        return self._queue.refusal()

    def admit(self, job: Job) -> Failure | None:
        """Give a job a place, to be submitted to or cancelled; or the reason why there is none."""
        return self._queue.admit(job)

    def submit(self, job: Job) -> None:
        """Queue a job; once the server is stopping it fails at once."""
        self._queue.submit(job)

    def cancel(self, job: Job) -> None:
        """Nobody wants this job any more: a waiting one is dropped, a running one stops at the next layer
        or token."""
        self._queue.cancel(job)

    def stop(self, grace: float) -> None:
        """Refuse new jobs, give the running and the waiting ones `grace` seconds, cut what is left, save what
        is live, and close the engine. Blocks; not for the worker's own thread."""
        self._queue.close(grace)
        self.cut()
        self._thread.join()

    def cut(self) -> None:
        """End all jobs: those who wait for one are told now that the server is stopping, the engine stops
        at the next layer or token."""
        self._queue.cut()

    def _main(self) -> None:
        try:
            engine = self._open_engine()
        except BaseException as error:
            # Whatever it was, the thread that called `start` reports it.
            self._open_error = error
            self._opened.set()
            return
        try:
            with ExitStack() as opened:
                try:
                    live = opened.enter_context(
                        live_state(engine, self._context, self.settings, self.tool_memory, self.log)
                    )
                    self._ready(engine, live)
                except BaseException as error:
                    self._open_error = error
                    return
                finally:
                    self._opened.set()
                self._serve(live.slots, engine)
        finally:
            engine.close()

    def _ready(self, engine: Engine, live: Live) -> None:
        """Let other threads know what they may ask about."""
        self._store, self._slots = live.store, live.slots
        self._facts = ModelFacts(
            name=engine.name,
            id=_MODEL_IDS.get(engine.model_id, _MODEL_IDS[0]),
            effort_profile=engine.effort_profile,
            context=self._context,
            tokenizer=engine.tokenizer,
        )

    def _serve(self, slots: Slots, engine: Engine) -> None:
        tools = TurnTools(
            tokenizer=engine.tokenizer,
            power=engine.power,
            tool_memory=self.tool_memory,
            log=self.log,
            exact_replay=self.settings.exact_replay,
            trace=self.trace,
            metrics=self.metrics,
        )
        scheduler = Scheduler(self._queue, slots, tools)
        while self._queue.wait():
            scheduler.round()
