"""From options to a run: the context it needs, the engine, the screen and the trace."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from apps.backend import open_engine, open_tokenizer
from apps.chat.interrupt import Interrupt
from apps.console import console, say, sayer
from apps.eval.context import automatic_context
from apps.eval.run import Run, run_plain
from apps.options import EngineOptions
from apps.startup import engine_notes, thinking_line
from apps.trace import TraceFile
from shared.questions.question import Question
from shared.questions.run import AskSettings, Outcome
from shared.questions.think_budget import ThinkLimits
from shared.sampling import Sampling
from shared.text.effort import Effort, resolve_effort


@dataclass(frozen=True, slots=True)
class EvalWish:
    """What was asked for; `context` None: what the questions need."""

    engine: EngineOptions
    context: int | None
    limits: ThinkLimits
    effort: Effort
    sampling: Sampling
    seed: int
    trace: Path | None


def run_questions(wish: EvalWish, questions: Sequence[Question]) -> list[Outcome]:
    """Open the engine and ask `questions`. Raises Cancelled after the report of a run that was stopped, and
    whatever opening raises."""
    context = wish.context
    if context is None:
        tokenizer = open_tokenizer(wish.engine, say=lambda _line: None)
        context = automatic_context(tokenizer, questions, wish.effort, wish.limits.tokens)
    with ExitStack() as stack:
        engine = stack.enter_context(closing(open_engine(replace(wish.engine, context=context))))
        effort, lowered = resolve_effort(wish.effort, engine.effort_profile, context)
        for note in [*engine_notes(engine), *([lowered] if lowered else [])]:
            say(note, "ds4.warning")
        say(f"{thinking_line(engine, effort)}, {len(questions)} questions, seed {wish.seed}")
        trace = None
        if wish.trace is not None:
            trace = stack.enter_context(TraceFile(wish.trace, say=sayer("ds4.warning")))
        interrupt = stack.enter_context(Interrupt())
        run = Run(engine, questions, AskSettings(wish.limits, effort, wish.sampling, wish.seed), context)
        return run_plain(run, out=console(sys.stdout), err=console(), trace=trace, cancelled=interrupt)
