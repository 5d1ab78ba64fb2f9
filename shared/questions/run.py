"""Asking one question: prompt, answer within its budget, verdict. Spec: apps §3.

Knows sessions and the decode loop; nothing of screens and files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from shared.errors import Cancelled
from shared.generate import Generation, GenerationSettings
from shared.questions.grading import NOTHING, grade
from shared.questions.prompt import SYSTEM, user_text
from shared.questions.question import Question
from shared.questions.think_budget import NOT_CLOSED, ThinkBudget, ThinkClose, ThinkLimits
from shared.sampling import Sampling, effective_sampling
from shared.session import CancelCheck, Engine, Progress, Session
from shared.text.effort import Effort
from shared.text.events import EndCause, TurnEvent
from shared.text.tokenizer import Tokenizer
from shared.text.transcript import Transcript
from shared.text.turn import Turn

Status = Literal["PENDING", "PREFILL", "RUNNING", "PASSED", "FAILED", "SKIPPED", "STOPPED"]


@dataclass(frozen=True, slots=True)
class AskSettings:
    """How every question is asked."""

    limits: ThinkLimits
    effort: Effort
    sampling: Sampling
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a question. `output` holds everything that was generated, control strings included."""

    status: Status
    picked: str = NOTHING
    prompt_tokens: int = 0
    generated: int = 0
    seconds: float = 0.0
    close: ThinkClose = NOT_CLOSED
    output: str = ""
    cause: EndCause | None = None


class Watcher:
    """Is told how a question goes; a screen overrides what it wants to show."""

    def prefill(self, done: int, total: int) -> None:
        """So many of the prompt's tokens are evaluated."""

    def token(self, events: Sequence[TurnEvent], generated: int, thinking: bool) -> None:
        """One more token came, and what it brought."""


def question_tokens(tokenizer: Tokenizer, question: Question, effort: Effort, profile: str) -> list[int]:
    """The prompt of a question."""
    transcript = Transcript(tokenizer, effort=effort, profile=profile, system=SYSTEM)
    transcript.add_user(user_text(question))
    transcript.begin_answer()
    return transcript.tokens


def ask(
    engine: Engine,
    session: Session,
    question: Question,
    settings: AskSettings,
    *,
    watcher: Watcher,
    cancelled: CancelCheck,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Ask `question`. A prompt that leaves no more room than the answer's reserve is SKIPPED; a cancelled one
    is STOPPED. Raises EngineFault."""
    tokens = question_tokens(engine.tokenizer, question, settings.effort, engine.effort_profile)
    room = session.context - len(tokens) - 1
    if room <= (settings.limits.hard if settings.effort != "none" else 0):
        return Outcome("SKIPPED", prompt_tokens=len(tokens))
    started = clock()
    turn = Turn(thinking=settings.effort != "none", tools=None)
    limits = ThinkLimits(
        min(settings.limits.tokens, room), settings.limits.soft, settings.limits.hard, settings.limits.rank
    )
    budget = ThinkBudget(session, turn, engine.tokenizer.specials.think_end, limits)
    generation = _generation(engine, session, turn, budget, limits, settings, cancelled)
    with suppress(Cancelled):
        progress: Progress = watcher.prefill
        session.sync(tokens, progress, cancelled=cancelled)
        for events in generation:
            watcher.token(events, len(generation.tokens), not turn.thinking_closed)
    cause = generation.cause if generation.finished else "cancelled"
    output = engine.tokenizer.decode(generation.tokens).decode("utf-8", "replace")
    picked, passed = grade(question, output)
    status: Status = "STOPPED" if cause == "cancelled" else "PASSED" if passed else "FAILED"
    return Outcome(
        status,
        picked,
        len(tokens),
        len(generation.tokens),
        clock() - started,
        budget.close,
        output,
        cause,
    )


def _generation(
    engine: Engine,
    session: Session,
    turn: Turn,
    budget: ThinkBudget,
    limits: ThinkLimits,
    settings: AskSettings,
    cancelled: CancelCheck,
) -> Generation:
    thinking = settings.effort != "none"
    return Generation(
        session,
        engine.tokenizer,
        turn,
        GenerationSettings(
            sampling=effective_sampling(settings.sampling, thinking),
            max_tokens=limits.tokens,
            seed=settings.seed,
        ),
        cancelled=cancelled,
        power=engine.power,
        masks=budget if thinking else None,
    )
