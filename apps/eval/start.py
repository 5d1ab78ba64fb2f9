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
from apps.eval.ability_suite import AbilitySuite
from apps.eval.context import automatic_context
from apps.eval.control_suite import ControlSuite
from apps.eval.run import Run, run_plain
from apps.eval.screen import has_room, run_board
from apps.eval.story_suite import StorySuite
from apps.options import EngineOptions
from apps.startup import engine_notes, thinking_line
from apps.trace import Trace, TraceFile
from shared.errors import UsageError
from shared.questions.question import Question
from shared.questions.run import AskSettings, Outcome
from shared.questions.think_budget import ThinkLimits
from shared.sampling import Sampling
from shared.session import Engine
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
    plain: bool
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class SuiteWish:
    """A built-in suite that was asked for; `context` None: what it needs."""

    engine: EngineOptions
    suite: AbilitySuite | ControlSuite | StorySuite
    context: int | None
    as_json: bool
    trace: Path | None


def run_questions(wish: EvalWish, questions: Sequence[Question]) -> list[Outcome]:
    """Open the engine and ask `questions`. Raises Cancelled after the report of a run that was stopped, and
    whatever opening raises."""
    context = wish.context
    if context is None:
        tokenizer = open_tokenizer(wish.engine, say=lambda _line: None)
        context = automatic_context(tokenizer, questions, wish.effort, wish.limits.tokens)
    with ExitStack() as stack:
        engine = _opened(stack, wish.engine, context)
        effort, lowered = resolve_effort(wish.effort, engine.effort_profile, context)
        if lowered is not None:
            say(lowered, "ds4.warning")
        say(f"{thinking_line(engine, effort)}, {len(questions)} questions, seed {wish.seed}")
        trace = None
        if wish.trace is not None:
            trace = stack.enter_context(TraceFile(wish.trace, say=sayer("ds4.warning")))
        interrupt = stack.enter_context(Interrupt())
        run = Run(engine, questions, AskSettings(wish.limits, effort, wish.sampling, wish.seed), context)
        out = console(sys.stdout)
        if wish.plain or not has_room(out):
            return run_plain(run, out=out, err=console(), trace=trace, cancelled=interrupt)
        return run_board(run, out=out, trace=trace, cancelled=interrupt, pause_seconds=wish.pause_seconds)


def run_suite(wish: SuiteWish) -> int:
    """Open the engine and run a suite; returns the exit code. Raises UsageError for a context that is too
    small, Cancelled, and whatever opening raises."""
    needed = wish.suite.context_needed(open_tokenizer(wish.engine, say=lambda _line: None))
    context = needed if wish.context is None else wish.context
    if context < needed:
        raise UsageError(f"--ctx {context} is too small for this suite: it needs {needed} tokens")
    with ExitStack() as stack:
        engine = _opened(stack, wish.engine, context)
        trace = stack.enter_context(Trace(wish.trace, say=sayer("ds4.warning")))
        interrupt = stack.enter_context(Interrupt())
        return wish.suite.run(engine, context, as_json=wish.as_json, trace=trace, cancelled=interrupt)


def _opened(stack: ExitStack, options: EngineOptions, context: int) -> Engine:
    engine = stack.enter_context(closing(open_engine(replace(options, context=context))))
    for note in engine_notes(engine):
        say(note, "ds4.warning")
    return engine
