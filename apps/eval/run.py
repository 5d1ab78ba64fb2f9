"""All questions of one run, in order: screen, trace, report, exit code. Knows no option."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from apps.eval.plain import PlainWatcher
from apps.eval.report import report_lines
from apps.trace import TraceFile
from shared.errors import Cancelled
from shared.questions.question import Question
from shared.questions.run import AskSettings, Outcome, ask, question_tokens
from shared.questions.trace import case_text, head_text, summary_text
from shared.session import CancelCheck, Engine

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Run:
    """What runs on one engine. `seed` of the settings is that of the first question, each later one has the
    next."""

    engine: Engine
    questions: Sequence[Question]
    settings: AskSettings
    context: int

    def head(self, written_at: str) -> Mapping[str, object]:
        """The trace's first lines."""
        engine, settings, limits = self.engine, self.settings, self.settings.limits
        return {
            "time": written_at,
            "model": engine.name,
            "shape": f"{engine.shape.layer_count} layers of {engine.shape.embedding_width}",
            "quant_bits": engine.quant_bits,
            "backend": engine.backend,
            "ctx": self.context,
            "tokens": limits.tokens,
            "soft_limit_reply_budget": limits.soft,
            "hard_limit_reply_budget": limits.hard,
            "soft_limit_think_close_rank": limits.rank,
            "temp": settings.sampling.temperature,
            "top_p": settings.sampling.top_p,
            "min_p": settings.sampling.min_p,
            "seed": settings.seed,
            "think": settings.effort,
            "effort_profile": engine.effort_profile,
        }


def begin_trace(run: Run, trace: TraceFile | None) -> None:
    """Write the first lines of a trace, if there is one."""
    if trace is not None:
        trace.write(head_text(run.head(time.strftime("%Y-%m-%dT%H:%M:%S%z"))))


def finish(
    run: Run, outcomes: Sequence[Outcome], seconds: float, *, out: Console, trace: TraceFile | None
) -> None:
    """Print the report, and write the last lines of a trace."""
    if trace is not None:
        trace.write(summary_text(outcomes, seconds))
    for line in report_lines(run.questions, outcomes, seconds):
        out.print(line)


def run_plain(
    run: Run,
    *,
    out: Console,
    err: Console,
    trace: TraceFile | None,
    cancelled: CancelCheck,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Ask every question and print the report. Raises Cancelled after the report, if the run was stopped."""
    started = clock()
    begin_trace(run, trace)
    outcomes: list[Outcome] = []
    chunk = run.engine.memory_plan(run.context).prefill_chunk
    with closing(run.engine.open_session(run.context)) as session:
        for number, question in enumerate(run.questions):
            size = len(
                question_tokens(
                    run.engine.tokenizer, question, run.settings.effort, run.engine.effort_profile
                )
            )
            watcher = PlainWatcher(out, err, size, chunk)
            watcher.heading(number + 1, len(run.questions), question)
            settings = replace(run.settings, seed=run.settings.seed + number)
            outcome = ask(
                run.engine, session, question, settings, watcher=watcher, cancelled=cancelled, clock=clock
            )
            watcher.verdict(question, outcome)
            outcomes.append(outcome)
            if trace is not None:
                trace.write(case_text(number + 1, len(run.questions), question, outcome))
            if outcome.status == "STOPPED":
                break
    stopped = bool(outcomes) and outcomes[-1].status == "STOPPED"
    outcomes += [Outcome("PENDING")] * (len(run.questions) - len(outcomes))
    finish(run, outcomes, clock() - started, out=out, trace=trace)
    if stopped:
        raise Cancelled("stopped: the questions that were not asked are PENDING")
    return outcomes
