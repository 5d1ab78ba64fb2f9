"""The log lines of one turn. Owns their wording: people grep for these fields. Spec: chat §7.3.

Several turns are in work at once, so every line ends with its turn's slot and request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from apps.memory import MIB
from apps.serve.jobs import Finished, Job, JobPhase
from apps.serve.live_match import LiveMatch
from apps.serve.log import LogFact, LogKind, ServerLog
from apps.serve.metrics import ServerMetrics
from shared.generate import Generation
from shared.kv.live.report import ReuseReport
from shared.kv.live.start import Source, Start
from shared.text.messages import ToolCall
from shared.text.turn import DecodeState, Turn

_TOKENS_PER_LINE: Final = 50
_LEAST_TOKENS: Final = 256


class TurnLog:
    """Progress of one job; all times are seconds of wall clock."""

    def __init__(self, job: Job, log: ServerLog, metrics: ServerMetrics) -> None:
        self._job = job
        self._log = log
        self._metrics = metrics
        self._started = self._mark = time.monotonic()
        self._marked_tokens = 0
        self._prefill_seconds = 0.0
        self._decode_started: float | None = None  # of an attempt that is not counted yet
        self._prompt = self._cached = self._generated = self._reasoning = 0
        self._source: Source = "miss"
        self._slot: int | None = None  # until it is known
        self._kind = job.request.ask.kind
        self._flags = " RESPPROTO" if self._kind == "responses" else ""
        self._flags += " TOOLS" if job.request.ask.tools is not None else ""

    def prompt_start(self, start: Start) -> None:
        self._prompt, self._cached, self._source = len(start.tokens), start.reused, start.source
        self._slot = start.slot.number
        self._line(f"{self._head()} prompt start", LogKind.PREFILL)
        if self._job.request.ask.note is not None:
            self._line(self._job.request.ask.note, LogKind.WARNING)
        if start.source not in ("memory-token", "disk-text", "miss"):
            kind, _, match = start.source.partition("-")
            tail = self._job.request.prompt.tail
            ids = f" ids={len(tail.calls)}" if tail is not None and start.source == tail.source else ""
            self._line(
                f"{kind} live continuation match={match}{ids} cached={self._cached} prompt={self._prompt}",
                LogKind.CACHE,
            )

    def bare_calls(self, count: int) -> None:
        """The model will not see why it made so many of its calls."""
        self._log.warning(
            f"{self._head()} calls without reasoning={count}: it did not come back, and no state holds it "
            f"req={self._job.request.id}"
        )

    def live_miss(self, match: LiveMatch) -> None:
        self._line(
            f"live kv cache miss live={match.live} prompt={match.prompt} common={match.common} "
            f"reason={match.reason}",
            LogKind.CACHE,
        )

    def prefill_progress(self, done: int, total: int) -> None:
        """After each completed prefill step, but for the end, which `prompt_done` reports: the last step is
        one token. Where a state is only remembered on the way no line is due."""
        now = time.monotonic()
        if done and done - self._marked_tokens < min(_LEAST_TOKENS, total // 100):
            return
        if 0 < done < total - 1:
            chunk = _rate(done - self._marked_tokens, now - self._mark)
            spent = now - self._started
            self._line(
                f"{self._head()} prefill chunk {done}/{total} ({100 * done / total:.1f}%) "
                f"chunk={chunk} t/s avg={_rate(done, spent)} t/s {spent:.3f}s",
                LogKind.PREFILL,
            )
        self._mark, self._marked_tokens = now, done

    def reuse(self, report: ReuseReport) -> None:
        """What became of the prompt's beginning."""
        self._log.line(f"{report} req={self._job.request.id}", LogKind.CACHE)

    def starts_over(self, file: str, reason: str) -> None:
        """The state of a cache file broke the engine; the turn begins again without it."""
        self._line(f'{self._head()} starts over without file={file} error="{reason}"', LogKind.WARNING)

    def prompt_done(self) -> None:
        self._prefill_seconds = time.monotonic() - self._started
        self._line(f"{self._head()} prompt done {self._prefill_seconds:.3f}s", LogKind.PREFILL)
        self._metrics.prefilled(
            self._source,
            self._prompt - self._cached,
            self._cached,
            queued=self._started - self._job.created,
            seconds=self._prefill_seconds,
        )

    def decode_start(self) -> None:
        """An attempt at an answer begins."""
        self._decode_started = self._mark = time.monotonic()
        self._marked_tokens = self._generated = self._reasoning = 0

    def restart(self) -> None:
        """The attempt came to nothing; the model is asked again."""
        self._line(f"{self._head()} tool call could not be read: asking the model again", LogKind.WARNING)
        self._end_attempt()

    def token(self, generation: Generation, turn: Turn) -> None:
        """After each step of decoding; writes a line now and then."""
        count = self._generated = generation.completion_tokens
        self._reasoning = generation.reasoning_tokens
        if count - self._marked_tokens >= _TOKENS_PER_LINE:
            now = time.monotonic()
            chunk = _rate(count - self._marked_tokens, now - self._mark)
            spent = now - (self._decode_started or now)
            self._line(
                f"{self._head()} gen={count}{_state(turn)} decoding chunk={chunk} t/s "
                f"avg={_rate(count, spent)} t/s {spent:.3f}s",
                LogKind.GENERATION,
            )
            self._mark, self._marked_tokens = now, count

    def calls(self, calls: Sequence[ToolCall], *, raw: bool) -> None:
        ids = ",".join(call.id for call in calls)
        names = ",".join(call.name[:64] for call in calls)
        self._line(
            f"tool calls ctx={self._span()} n={len(calls)} raw_dsml={int(raw)} ids=[{ids}] names=[{names}]",
            LogKind.TOOLS,
        )

    def finished(self, finished: Finished, saved_bytes: int) -> None:
        """The one line that sums a request up; `saved_bytes` went to disk on its behalf."""
        now = time.monotonic()
        generated = finished.usage.completion
        prefilled = self._prompt - self._cached
        self._generated, self._reasoning = generated, finished.usage.reasoning
        decode_seconds = self._end_attempt()
        self._metrics.turn_ended(self._kind, finished.finish_reason)
        self._line(
            f"{self._head()} gen={generated} source={self._source} prefilled={prefilled} "
            f"prefill={_rate(prefilled, self._prefill_seconds)} t/s "
            f"decode={_rate(generated, decode_seconds)} t/s saved={saved_bytes / MIB:.2f} MiB "
            f"queued={self._started - self._job.created:.3f}s finish={finished.finish_reason} "
            f"{now - self._job.created:.3f}s",
            LogKind.GENERATION,
            **self._facts(finished.finish_reason),
            prompt_tokens=self._prompt,
            reused_tokens=self._cached,
            source=self._source,
            prefill_seconds=round(self._prefill_seconds, 3),
            generated_tokens=generated,
            decode_seconds=round(decode_seconds, 3),
            saved_bytes=saved_bytes,
            queued_seconds=round(self._started - self._job.created, 3),
            seconds=round(now - self._job.created, 3),
        )

    def cancelled(self) -> None:
        self.broken_off("cancelled")
        self._line(
            f"{self._head()} cancelled during {self._phase()}",
            LogKind.PLAIN,
            **self._facts("cancelled"),
            generated_tokens=self._generated,
        )

    def refused(self, reason: str) -> None:
        """No slot can take the prompt."""
        self.broken_off("refused")
        self._line(
            f'{self._kind} finish=refused reason="{reason}"', LogKind.WARNING, **self._facts("refused")
        )

    def failed(self, reason: str) -> None:
        self.broken_off("error")
        self._line(
            f'{self._head()} finish=error error="{reason}"',
            LogKind.ERROR,
            **self._facts("error"),
            error=reason,
        )

    def broken_off(self, how: str) -> None:
        """Count a turn that did not end well."""
        self._end_attempt()
        self._metrics.turn_ended(self._kind, how)

    def _end_attempt(self) -> float:
        """Count the attempt, if one has begun. Returns its seconds."""
        if self._decode_started is None:
            return 0.0
        seconds = time.monotonic() - self._decode_started
        self._decode_started = None
        self._metrics.decoded(self._kind, self._generated, self._reasoning, seconds)
        return seconds

    def _facts(self, finish: str) -> dict[str, LogFact]:
        slot: dict[str, LogFact] = {} if self._slot is None else {"slot": self._slot}
        return {"request": self._job.request.id, "endpoint": self._kind, "finish": finish} | slot

    def _line(self, text: str, kind: LogKind, **facts: LogFact) -> None:
        slot = "" if self._slot is None else f" slot={self._slot}"
        self._log.line(f"{text}{slot} req={self._job.request.id}", kind, **facts)

    def _phase(self) -> str:
        return "decode" if self._job.phase is JobPhase.DECODE else "prefill"

    def _span(self) -> str:
        return f"{self._cached}..{self._prompt}:{self._prompt - self._cached}"

    def _head(self) -> str:
        return f"{self._kind} ctx={self._span()}{self._flags}"


def _state(turn: Turn) -> str:
    thinking = "" if turn.thinking_closed else " THINKING"
    return thinking + ("" if turn.decode_state is DecodeState.OUTSIDE else " DSML_START")


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f}" if seconds > 0 else "0.0"
