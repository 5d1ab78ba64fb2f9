"""One job on the engine: prefill, decode, and what is remembered afterwards.

Runs on the inference thread. `TurnRun.steps` yields after every bounded piece of work, so that a scheduler
can interleave several turns. Knows no dialect and no HTTP. Spec: chat §3.6, §3.7, §6; kv §9.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace

from apps.serve.errors import STOPPING, Failure
from apps.serve.jobs import Emitted, Finished, Job, JobPhase, PrefillDone, Restarted, Timings, Usage
from apps.serve.live_match import closest_match
from apps.serve.log import ServerLog, describe
from apps.serve.metrics import ServerMetrics
from apps.serve.remember import Answer, remember_answer
from apps.serve.retry import retry_suffix
from apps.serve.trace import ServerTrace
from apps.serve.turn_log import TurnLog
from shared.errors import Cancelled, ContextFullError, Ds4Error
from shared.generate import Generation
from shared.kv.live.prefill import Prefill
from shared.kv.live.slots import Slots
from shared.kv.live.start import Start
from shared.kv.live.tool_memory import ToolMemory
from shared.power import PowerGovernor
from shared.text.tokenizer import Tokenizer
from shared.text.turn import DecodeState, Turn


@dataclass(frozen=True, slots=True)
class TurnTools:
    """What a turn works with besides its slot."""

    tokenizer: Tokenizer
    power: PowerGovernor
    tool_memory: ToolMemory
    log: ServerLog
    exact_replay: bool
    trace: ServerTrace | None = None
    metrics: ServerMetrics = field(default_factory=ServerMetrics)


def run_turn(job: Job, slots: Slots, tools: TurnTools) -> None:
    """Run a job to its end and tell its channel. Only faults of our own come out as exceptions."""
    run = TurnRun(job, slots, tools)
    try:
        for _ in run.steps():
            pass
    except Cancelled:
        run.log.cancelled()
        run.end(f"cancelled during {job.phase.value}")
        # Only a stopping server cancels a job that still has a listener.
        job.fail(STOPPING)
    except ContextFullError as error:
        run.end(f"refused: {error}")
        job.fail(Failure.of(error, param=job.request.ask.input_field))
    except Ds4Error as error:
        run.log.failed(describe(error))
        run.end(f"failed during {job.phase.value}: {describe(error)}", state_is_good=False)
        job.fail(Failure(500, f"the engine failed during {job.phase.value}; the next request starts clean"))
    except Exception as error:
        run.end(f"internal error: {describe(error)}", state_is_good=False)
        raise


class TurnRun:
    """A turn in work. From its prefill on it holds a slot, until it ends."""

    def __init__(self, job: Job, slots: Slots, tools: TurnTools) -> None:
        self._job = job
        self._request = job.request
        self._slots = slots
        self._tools = tools
        self._start: Start | None = None
        self._saved_bytes = 0
        self._prefill_seconds = 0.0
        self._retried = False
        self.log = TurnLog(job, tools.log, tools.metrics)
        self._trace = tools.trace.begin(job.request, tools.tokenizer) if tools.trace else None

    def steps(self) -> Iterator[None]:
        """Do the turn. Raises Cancelled, ContextFullError, EngineFault; then call `end`."""
        self._job.phase = JobPhase.PREFILL
        began = time.monotonic()
        start, usage = yield from self._prefill_or_start_over()
        self._prefill_seconds = time.monotonic() - began
        yield
        turn, generation = yield from self._decode(start)
        if self._may_retry(turn, generation) and self._retry(start):
            yield
            turn, generation = yield from self._decode(start)
        self._finish(start, turn, generation, usage)

    def end(self, how: str, *, state_is_good: bool = True) -> None:
        """The turn did not end well: the trace says why, the slot is free."""
        if self._start is not None:
            if not state_is_good:
                self._start.slot.invalidate()
            self._release(self._start)
        if self._trace is not None:
            self._trace.ended(how)

    def _prefill_or_start_over(self) -> Generator[None, None, tuple[Start, Usage]]:
        """A state from disk that breaks the engine costs its file and a second beginning, not the answer."""
        start = self._begin()
        try:
            usage = yield from self._prefill(start)
        except (Cancelled, ContextFullError):
            raise
        except Ds4Error as error:
            self._start = None
            self._slots.failed(start)
            if start.file is None:
                raise
            self.log.starts_over(start.file.name, describe(error))
            start = self._begin()
            usage = yield from self._prefill(start)
        return start, usage

    def _begin(self) -> Start:
        prompt = self._request.prompt
        match, session = closest_match(self._slots, prompt.tokens)
        if self._trace is not None:
            self._trace.compared(match, session)
        self._start = start = self._slots.begin(prompt)
        self.log.prompt_start(start)
        if start.source in ("miss", "disk-text") and match.live:
            self.log.live_miss(match)
        if self._trace is not None:
            self._trace.planned(start)
        return start

    def _prefill(self, start: Start) -> Generator[None, None, Usage]:
        work = Prefill(
            self._slots, start, progress=self.log.prefill_progress, cancelled=self._job.is_cancelled
        )
        try:
            yield from work.steps()
        finally:
            self._saved_bytes += work.report().saved_bytes
        self.log.reuse(work.report())
        self.log.prompt_done()
        if self._trace is not None:
            self._trace.prefilled(work.synced)
        usage = Usage(
            prompt=len(start.tokens),
            cached=start.reused,
            cache_write=max(0, work.secured - start.reused),
        )
        self._job.channel.put(PrefillDone(usage))
        return usage

    def _decode(self, start: Start) -> Generator[None, None, tuple[Turn, Generation]]:
        """One attempt at an answer; its events go out as they come."""
        self._job.phase = JobPhase.DECODE
        ask, slot = self._request.ask, start.slot
        form, thinking = self._request.form, self._request.thinking
        turn = Turn(
            thinking=thinking,
            tools=ask.tools,
            verbatim=ask.json is not None,
            new_id=self._tools.tool_memory.unique(lambda: ask.call_id_prefix + secrets.token_hex(16)),
        )
        generation = Generation(
            slot.session,
            self._tools.tokenizer,
            turn,
            ask.generation,
            cancelled=self._job.is_cancelled,
            power=self._tools.power,
            masks=None if form is None else form.begin(thinking=thinking),
        )
        first = slot.session.position
        try:
            for events in generation:
                if events:
                    self._job.channel.put(Emitted(events))
                self.log.token(generation, turn)
                if self._trace is not None:
                    self._trace.token(generation, turn)
                if not generation.finished:
                    self._save_on_the_way(start, turn)
                yield
        finally:
            slot.sampled(first)
        if generation.cause == "cancelled":
            raise Cancelled
        return turn, generation

    def _save_on_the_way(self, start: Start, turn: Turn) -> None:
        calling = turn.decode_state is not DecodeState.OUTSIDE or turn.held_call
        saved = self._slots.while_decoding(start.slot, in_tool_call=calling)
        self._saved_bytes += saved.bytes if saved is not None else 0

    def _may_retry(self, turn: Turn, generation: Generation) -> bool:
        """A whole answer whose calls all failed is tried again, once, if the model ended it itself."""
        return (
            self._request.may_retry
            and bool(turn.notice)
            and not turn.calls
            and generation.cause in ("eos", "tool")
        )

    def _retry(self, start: Start) -> bool:
        """Tell the model that its call failed; False if the context has no room for that."""
        session, suffix = start.slot.session, retry_suffix(self._request)
        tokens = session.tokens + self._tools.tokenizer.encode_segments(suffix)
        if len(tokens) >= session.context:
            return False
        self.log.restart()
        if self._trace is not None:
            self._trace.retried(suffix)
        self._job.channel.put(Restarted())
        self._retried = True
        session.sync(tokens, self.log.prefill_progress, cancelled=self._job.is_cancelled)
        return True

    def _finish(self, start: Start, turn: Turn, generation: Generation, prefilled: Usage) -> None:
        answer = Answer(self._request, turn, generation, self._retried)
        memory = self._tools.tool_memory if self._tools.exact_replay else None
        replayed = remember_answer(answer, start.slot, memory)
        self._release(start)
        if turn.calls:
            self.log.calls(turn.calls, raw=replayed)
        usage = replace(
            prefilled, completion=generation.completion_tokens, reasoning=generation.reasoning_tokens
        )
        finished = Finished(
            generation.finish_reason,
            generation.matched_stop,
            usage,
            tuple(turn.calls),
            turn.thinking_closed,
            Timings(self._prefill_seconds, generation.seconds),
        )
        self.log.finished(finished, self._saved_bytes)
        if self._trace is not None:
            self._trace.finished(turn, generation)
        self._job.channel.put(finished)

    def _release(self, start: Start) -> None:
        self._slots.release(start.slot)
        self._start = None
