"""One job on the engine: prefill, decode, and what is remembered afterwards.

Runs on the inference thread, one bounded piece of work at a time, so that a scheduler can interleave several
turns. Knows no dialect and no HTTP. Spec: chat §3.6, §3.7, §6; kv §9.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from apps.serve.errors import STOPPING, Failure
from apps.serve.jobs import Emitted, Finished, Job, JobPhase, PrefillDone, Restarted, Timings, Usage
from apps.serve.live_match import closest_match
from apps.serve.log import ServerLog, describe
from apps.serve.metrics import ServerMetrics
from apps.serve.remember import Answer, remember_answer
from apps.serve.retry import retry_suffix
from apps.serve.trace import ServerTrace
from apps.serve.turn_log import TurnLog
from shared.errors import Cancelled, ContextFullError, Ds4Error, LiveStateLost
from shared.generate import Generation
from shared.kv.live.prefill import Prefill
from shared.kv.live.slots import Slots
from shared.kv.live.start import Start
from shared.kv.live.tool_memory import ToolMemory
from shared.power import PowerGovernor
from shared.text.tokenizer import Tokenizer
from shared.text.turn import DecodeState, Turn

# A sampled token costs an engine about as much as so many of a prompt.
_TOKEN_WORK: Final = 16


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


class TurnRun:
    """A turn in work: `advance` it to its end. From its prefill on it holds a slot.

    `quantum` is asked how many tokens of the prompt the next piece of work may have. `over` is called when
    the slot is free again, before anybody is told.
    """

    def __init__(
        self,
        job: Job,
        slots: Slots,
        tools: TurnTools,
        *,
        quantum: Callable[[], int],
        over: Callable[[], None],
    ) -> None:
        self.job = job
        self.last_work = 0  # of the last piece, in tokens of a prompt
        self._request = job.request
        self._slots = slots
        self._tools = tools
        self._quantum = quantum
        self._over = over
        self._start: Start | None = None
        self._prefilled = 0
        self._saved_bytes = 0
        self._prefill_seconds = 0.0
        self._retried = False
        self._log = TurnLog(job, tools.log, tools.metrics)
        self._trace = tools.trace.begin(job.request, tools.tokenizer) if tools.trace else None
        self._work = self._steps()

    @property
    def decoding(self) -> bool:
        """The next piece of work is a token."""
        return self.job.phase is JobPhase.DECODE

    @property
    def cancelled(self) -> bool:
        """The next piece of work will be the end."""
        return self.job.is_cancelled()

    def advance(self) -> bool:
        """Do one piece of work; False when the turn is over and its channel knows how it ended. Only faults
        of our own come out as exceptions, and end the turn too."""
        decoding, before = self.decoding, self._prefilled
        try:
            next(self._work)
            return True
        except StopIteration:
            return False
        except Cancelled:
            self._log.cancelled()
            self._end(f"cancelled during {self.job.phase.value}")
            # Only a stopping server cancels a job that still has a listener.
            self.job.fail(STOPPING)
        except ContextFullError as error:
            self._log.refused(str(error))
            self._end(f"refused: {error}")
            self.job.fail(Failure.of(error, param=self._request.ask.input_field))
        except LiveStateLost as error:
            self._log.refused(str(error))
            self._end(f"refused: {error}")
            self.job.fail(Failure(409, str(error), param=self._request.ask.input_field))
        except Ds4Error as error:
            phase = self.job.phase.value
            self._log.failed(describe(error))
            self._end(f"failed during {phase}: {describe(error)}", state_is_good=False)
            self.job.fail(Failure(500, f"the engine failed during {phase}; the next request starts clean"))
        except Exception as error:
            self._log.broken_off("error")  # whoever catches it writes the line
            self._end(f"internal error: {describe(error)}", state_is_good=False)
            raise
        finally:
            self.last_work = _TOKEN_WORK if decoding else max(0, self._prefilled - before)
        return False

    def _steps(self) -> Iterator[None]:
        """The whole turn. Raises Cancelled, ContextFullError, LiveStateLost, EngineFault; then it has to be
        ended."""
        self.job.phase = JobPhase.PREFILL
        began = time.monotonic()
        start, usage = yield from self._prefill_or_start_over()
        self._prefill_seconds = time.monotonic() - began
        turn, generation = yield from self._decode(start)
        if self._may_retry(turn, generation) and (yield from self._retry(start)):
            turn, generation = yield from self._decode(start)
        self._finish(start, turn, generation, usage)

    def _end(self, how: str, *, state_is_good: bool = True) -> None:
        """The turn did not end well: the trace says why, the slot is free."""
        if self._start is not None:
            if not state_is_good:
                self._start.slot.invalidate()
            self._release(self._start)
        if self._trace is not None:
            self._trace.ended(how)
        self._over()

    def _prefill_or_start_over(self) -> Generator[None, None, tuple[Start, Usage]]:
        """A state from disk that breaks the engine costs its file and a second beginning, not the answer."""
        start = yield from self._begin()
        try:
            usage = yield from self._prefill(start)
        except (Cancelled, ContextFullError):
            raise
        except Ds4Error as error:
            self._start = None
            self._slots.failed(start)
            if start.file is None:
                raise
            self._log.starts_over(start.file.name, describe(error))
            start = yield from self._begin()
            usage = yield from self._prefill(start)
        return start, usage

    def _begin(self) -> Generator[None, None, Start]:
        prompt = self._request.prompt
        match, session = closest_match(self._slots, prompt.tokens)
        if self._trace is not None:
            self._trace.compared(match, session)
        self._start = start = self._slots.begin(prompt)
        self._log.prompt_start(start)
        bare = self._request.bare_calls
        if bare and self._request.ask.kind == "responses" and not start.holds_answers:
            self._log.bare_calls(bare)
        if start.source in ("miss", "disk-text") and match.live:
            self._log.live_miss(match)
        if self._trace is not None:
            self._trace.planned(start)
        if start.file is not None or start.saved is not None:
            yield  # whole states were moved: that was a piece of work by itself
        return start

    def _prefill(self, start: Start) -> Generator[None, None, Usage]:
        work = Prefill(
            self._slots,
            start,
            progress=self._progress,
            cancelled=self.job.is_cancelled,
            quantum=self._quantum,
        )
        try:
            yield from work.steps()
        finally:
            self._saved_bytes += work.report().saved_bytes
        self._log.reuse(work.report())
        self._log.prompt_done()
        if self._trace is not None:
            self._trace.prefilled(work.synced)
        usage = Usage(
            prompt=len(start.tokens),
            cached=start.reused,
            cache_write=max(0, work.secured - start.reused),
        )
        self.job.channel.put(PrefillDone(usage))
        return usage

    def _progress(self, done: int, total: int) -> None:
        self._prefilled = done
        self._log.prefill_progress(done, total)

    def _decode(self, start: Start) -> Generator[None, None, tuple[Turn, Generation]]:
        """One attempt at an answer, step by step; its events go out as they come."""
        self.job.phase = JobPhase.DECODE
        self._log.decode_start()
        yield
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
            cancelled=self.job.is_cancelled,
            power=self._tools.power,
            masks=None if form is None else form.begin(thinking=thinking),
        )
        first = slot.session.position
        told = 0  # tokens, of a step that may have several
        try:
            for events in generation:
                told += 1
                if events:
                    self.job.channel.put(Emitted(events))
                self._log.token(generation, turn)
                if self._trace is not None:
                    self._trace.token(generation, turn)
                if not generation.finished and told == generation.completion_tokens:
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

    def _retry(self, start: Start) -> Generator[None, None, bool]:
        """Tell the model that its call failed; False if the context has no room for that."""
        session, suffix = start.slot.session, retry_suffix(self._request)
        tokens = session.tokens + self._tools.tokenizer.encode_segments(suffix)
        if len(tokens) >= session.context:
            return False
        self.job.phase = JobPhase.PREFILL
        self._log.restart()
        if self._trace is not None:
            self._trace.retried(suffix)
        self.job.channel.put(Restarted())
        self._retried = True
        first, total = session.position, len(tokens) - session.position
        self._progress(0, total)
        while session.position < len(tokens):
            yield
            base, quantum = session.position, self._quantum()
            session.sync(tokens[: base + quantum], None, quantum, self.job.is_cancelled)
            self._progress(session.position - first, total)
        return True

    def _finish(self, start: Start, turn: Turn, generation: Generation, prefilled: Usage) -> None:
        answer = Answer(self._request, start.prompt, turn, generation, self._retried)
        memory = self._tools.tool_memory if self._tools.exact_replay else None
        replayed = remember_answer(answer, start.slot, memory)
        self._release(start)
        if turn.calls:
            self._log.calls(turn.calls, raw=replayed)
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
        self._log.finished(finished, self._saved_bytes)
        if self._trace is not None:
            self._trace.finished(turn, generation)
        self._over()
        self.job.channel.put(finished)

    def _release(self, start: Start) -> None:
        self._slots.release(start.slot)
        self._start = None
