"""One job on the engine: prefill, decode, and what is remembered afterwards.

Runs on the inference thread. `TurnRun.steps` yields after every bounded piece of work, so that a scheduler
can interleave several turns. Knows no dialect and no HTTP. Spec: chat §3.6, §3.7, §6.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from apps.serve.errors import STOPPING, Failure
from apps.serve.jobs import Emitted, Finished, Job, JobPhase, PrefillDone, Restarted, Usage
from apps.serve.live_match import LiveMatch
from apps.serve.log import ServerLog, describe
from apps.serve.retry import retry_suffix
from apps.serve.slot import EffectivePrompt, LiveSlot
from apps.serve.trace import ServerTrace
from apps.serve.turn_log import TurnLog
from shared.errors import Cancelled, ContextFullError, Ds4Error
from shared.generate import Generation
from shared.kv.live.tool_memory import ToolMemory
from shared.power import PowerGovernor
from shared.session import Synced
from shared.text.tokenizer import Tokenizer
from shared.text.turn import Turn


@dataclass(frozen=True, slots=True)
class TurnTools:
    """What a turn works with besides its session."""

    tokenizer: Tokenizer
    power: PowerGovernor
    tool_memory: ToolMemory
    log: ServerLog
    exact_replay: bool
    trace: ServerTrace | None = None


def run_turn(job: Job, slot: LiveSlot, tools: TurnTools) -> None:
    """Run a job to its end and tell its channel. Only faults of our own come out as exceptions."""
    run = TurnRun(job, slot, tools)
    try:
        for _ in run.steps():
            pass
    except Cancelled:
        run.log.cancelled()
        run.trace_end(f"cancelled during {job.phase.value}")
        # Only a stopping server cancels a job that still has a listener.
        job.fail(STOPPING)
    except ContextFullError as error:
        run.trace_end(f"refused: {error}")
        job.fail(Failure.of(error))
    except Ds4Error as error:
        slot.invalidate()
        run.log.failed(describe(error))
        run.trace_end(f"failed during {job.phase.value}: {describe(error)}")
        job.fail(Failure(500, f"the engine failed during {job.phase.value}; the next request starts clean"))
    except Exception as error:
        run.trace_end(f"internal error: {describe(error)}")
        raise


class TurnRun:
    """A turn in work on one slot."""

    def __init__(self, job: Job, slot: LiveSlot, tools: TurnTools) -> None:
        self._job = job
        self._request = job.request
        self._slot = slot
        self._session = slot.session
        self._tools = tools
        self.log = TurnLog(job, tools.log)
        self._trace = tools.trace.begin(job.request, tools.tokenizer) if tools.trace else None

    def steps(self) -> Iterator[None]:
        """Do the turn. Raises Cancelled, ContextFullError, EngineFault."""
        usage = self._prefill()
        yield
        turn, generation = yield from self._decode()
        if self._may_retry(turn, generation) and self._retry():
            yield
            turn, generation = yield from self._decode()
        self._finish(turn, generation, usage)

    def trace_end(self, how: str) -> None:
        """The turn did not end well; the trace says why."""
        if self._trace is not None:
            self._trace.ended(how)

    def _prefill(self) -> Usage:
        self._job.phase = JobPhase.PREFILL
        effective = self._plan()
        synced = self._sync_with_checkpoint(effective)
        self.log.prompt_done(synced.reused)
        if self._trace is not None:
            self._trace.prefilled(synced)
        usage = Usage(len(effective.tokens), synced.reused)
        self._job.channel.put(PrefillDone(usage))
        return usage

    def _plan(self) -> EffectivePrompt:
        prompt = self._request.tokens
        match = LiveMatch(self._session.position, len(prompt), self._session.common_prefix(prompt))
        if self._trace is not None:
            self._trace.compared(match, self._session)
        effective = self._slot.plan(self._request)
        cached = 0 if effective.source == "none" else self._session.position
        self.log.prompt_start(effective, cached)
        if effective.source == "none" and match.live:
            self.log.live_miss(match)
        if self._trace is not None:
            self._trace.planned(effective, cached)
        return effective

    def _sync_with_checkpoint(self, effective: EffectivePrompt) -> Synced:
        """Prefill with a checkpoint before the last token: there a prompt that is asked again, or whose
        thinking mark changes, parts from this one."""
        before_last = effective.tokens[:-1]
        live = 0 if effective.source == "none" else self._session.position
        if live >= len(before_last) or not before_last:
            return self._sync(effective.tokens)
        head = self._session.sync(before_last, self._all_but_one, cancelled=self._job.is_cancelled)
        self._slot.checkpoint()
        tail = self._session.sync(effective.tokens, cancelled=self._job.is_cancelled)
        return Synced(head.reused, head.evaluated + tail.evaluated)

    def _all_but_one(self, done: int, total: int) -> None:
        """Progress of a prefill that leaves out the last token."""
        self.log.prefill_progress(done, total + 1 if done < total else total)

    def _sync(self, tokens: list[int]) -> Synced:
        return self._session.sync(tokens, self.log.prefill_progress, cancelled=self._job.is_cancelled)

    def _decode(self) -> Generator[None, None, tuple[Turn, Generation]]:
        """One attempt at an answer; its events go out as they come."""
        self._job.phase = JobPhase.DECODE
        ask = self._request.ask
        turn = Turn(
            thinking=self._request.thinking, tools=ask.tools, new_id=self._tools.tool_memory.unique(_new_id)
        )
        generation = Generation(
            self._session,
            self._tools.tokenizer,
            turn,
            ask.generation,
            cancelled=self._job.is_cancelled,
            power=self._tools.power,
        )
        start = self._session.position
        try:
            for events in generation:
                if events:
                    self._job.channel.put(Emitted(events))
                self.log.token(generation, turn)
                if self._trace is not None:
                    self._trace.token(generation, turn)
                yield
        finally:
            self._slot.sampled(start)
        if generation.cause == "cancelled":
            raise Cancelled
        return turn, generation

    def _may_retry(self, turn: Turn, generation: Generation) -> bool:
        """A whole answer whose calls all failed is tried again, once, if the model ended it itself."""
        return (
            self._request.may_retry
            and bool(turn.notice)
            and not turn.calls
            and generation.cause in ("eos", "tool")
        )

    def _retry(self) -> bool:
        """Tell the model that its call failed; False if the context has no room for that."""
        suffix = retry_suffix(self._request)
        tokens = self._session.tokens + self._tools.tokenizer.encode_segments(suffix)
        if len(tokens) >= self._session.context:
            return False
        self.log.restart()
        if self._trace is not None:
            self._trace.retried(suffix)
        self._job.channel.put(Restarted())
        self._sync(tokens)
        return True

    def _finish(self, turn: Turn, generation: Generation, prefilled: Usage) -> None:
        self._remember(turn, generation)
        usage = replace(
            prefilled, completion=generation.completion_tokens, reasoning=generation.reasoning_tokens
        )
        finished = Finished(generation.finish_reason, generation.matched_stop, usage, tuple(turn.calls))
        self.log.finished(finished)
        if self._trace is not None:
            self._trace.finished(turn, generation)
        self._job.channel.put(finished)

    def _remember(self, turn: Turn, generation: Generation) -> None:
        """What the next request of this conversation can build on."""
        if turn.calls:
            raw = turn.raw_block if self._tools.exact_replay else None
            if raw is not None:
                self._tools.tool_memory.remember([call.id for call in turn.calls], raw, turn.reasoning)
            self.log.calls(turn.calls, raw=raw is not None)
        elif (
            self._request.thinking
            and not self._request.tool_context
            and turn.thinking_closed
            and generation.cause == "eos"
        ):
            self._slot.remember_visible(self._request, turn.content)


def _new_id() -> str:
    return f"call_{secrets.token_hex(16)}"
