"""Turns on a scheduler without threads, sockets and clocks: a test does the rounds itself."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

from apps.serve.job_queue import JobQueue
from apps.serve.jobs import Emitted, EventChannel, Failed, Finished, Job, JobEvent
from apps.serve.log import ServerLog
from apps.serve.run_turn import TurnTools
from apps.serve.scheduler import Scheduler
from apps.serve.schema.chat_ask import parse_chat
from apps.serve.settings import ServerSettings
from apps.serve.turn_request import ModelFacts, prepare
from shared.kv.live.slots import Slots
from shared.kv.live.tool_memory import ToolMemory
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import KvStore
from shared.scripted.journal import JournalEntry
from tests.support.scripted import scripted

CONTEXT = 40_000


class Scheduled:
    """`sessions` slots over an engine that plays `turns`, each of which has a `match`. With a `folder` there
    is a disk store. Used as a context manager."""

    def __init__(
        self, *turns: dict[str, Any], sessions: int = 2, waiting: int = 64, folder: Path | None = None
    ) -> None:
        self.engine = scripted(*turns, prefill_chunk=8192)
        self.log = io.StringIO()
        self.queue = JobQueue(sessions, waiting)
        memory = ToolMemory(100)
        self.store: KvStore | None = None
        if folder is not None:
            identity = ModelIdentity(0, 2, self.engine.fingerprint, self.engine.name)
            settings = StoreSettings(min_tokens=64, durable=False)
            decode = self.engine.tokenizer.decode
            self.store = KvStore(folder, identity, settings, decode=decode, say=lambda line: None)
        opened = [self.engine.open_session(CONTEXT) for _ in range(sessions)]
        self.slots = Slots(opened, self.engine.tokenizer, store=self.store, tool_memory=memory)
        log = ServerLog(self.log, colour=False)
        tools = TurnTools(self.engine.tokenizer, self.engine.power, memory, log, exact_replay=True)
        self.scheduler = Scheduler(self.queue, self.slots, tools)
        self._memory = memory
        self._facts = ModelFacts("scripted", "deepseek-v4-flash", "official", CONTEXT, self.engine.tokenizer)
        self._loop = asyncio.new_event_loop()
        self._told: dict[Job, list[JobEvent]] = {}

    def __enter__(self) -> Scheduled:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.close()
        if self.store is not None:
            self.store.close()
        self.engine.close()

    def ask(self, *history: str, system: str | None = None, **body: Any) -> Job:
        """Submit a prompt: user messages and answers by turns."""
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(history)]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        settings = ServerSettings()
        parsed = parse_chat({"messages": messages, "think": False} | body, self._facts, settings)
        request = prepare(parsed, f"req_{len(self._told)}", self._facts, settings, self._memory)
        job = Job(request, EventChannel(self._loop, eager=True))
        self._told[job] = []
        self.queue.submit(job)
        return job

    def rounds(self, count: int) -> list[JournalEntry]:
        """Do so many rounds; returns what they asked of the engine."""
        before = len(self.engine.journal.entries)
        for _ in range(count):
            self.scheduler.round()
        return list(self.engine.journal.entries)[before:]

    def run(self, *jobs: Job, most: int = 10_000) -> int:
        """Do rounds until all `jobs`, or all there are, have ended; returns how many it took."""
        for count in range(most):
            if all(self.ended(job) for job in jobs or self._told):
                return count
            self.scheduler.round()
        raise AssertionError(f"not done after {most} rounds")

    def events(self, job: Job) -> list[JobEvent]:
        """What the channel was told so far."""
        self._told[job] += self._loop.run_until_complete(job.channel.next(0))
        return self._told[job]

    def ended(self, job: Job) -> bool:
        return any(isinstance(event, Finished | Failed) for event in self.events(job))

    def text(self, job: Job) -> str:
        """The answer so far."""
        emitted = [event for event in self.events(job) if isinstance(event, Emitted)]
        return "".join(event.text for part in emitted for event in part.events if hasattr(event, "text"))

    def end(self, job: Job) -> Finished | Failed:
        """How it ended; only the first end counts."""
        return next(event for event in self.events(job) if isinstance(event, Finished | Failed))
