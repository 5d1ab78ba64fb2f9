"""One answer of the model: prefill with progress, generation shown as it comes, figures at the end.

Knows a session and two consoles; nothing of conversations, commands or prompt formats.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apps.chat.prefill_progress import prefill_progress
from apps.chat.reply_printer import ReplyPrinter
from apps.chat.settings import ChatSettings
from apps.chat.statistics import TurnStatistics
from shared.errors import ContextFullError
from shared.generate import Generation, GenerationSettings
from shared.session import CancelCheck, Engine, Session
from shared.text.events import EndCause
from shared.text.turn import Turn

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Answer:
    """The generated tokens (without the end token), why they ended, and what they cost."""

    tokens: list[int]
    cause: EndCause
    thinking_only: bool
    statistics: TurnStatistics


class Answerer:
    """Produces answers on one engine, writing them to `out` and progress to `err`."""

    def __init__(
        self,
        engine: Engine,
        *,
        out: Console,
        err: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._out = out
        self._err = err
        self._clock = clock

    def answer(
        self,
        session: Session,
        prompt: Sequence[int],
        settings: ChatSettings,
        *,
        thinking: bool,
        seed: int | None,
        cancelled: CancelCheck,
    ) -> Answer:
        """Prefill `prompt` and generate until the model ends its turn, the budget or context is used up,
        or `cancelled` says so during generation (cause `cancelled`).

        Raises Cancelled when cancelled during prefill, ContextFullError, EngineFault.
        """
        if len(prompt) >= session.context:
            raise ContextFullError(len(prompt), session.context)
        started = self._clock()
        with prefill_progress(self._engine, session, len(prompt), on=self._err) as progress:
            synced = session.sync(prompt, progress, cancelled=cancelled)
        prefilled = self._clock()
        turn = Turn(thinking=thinking, tools=None)
        generation = Generation(
            session,
            self._engine.tokenizer,
            turn,
            GenerationSettings(
                sampling=settings.sampling,
                max_tokens=min(settings.max_tokens, session.context - len(prompt) - 1),
                seed=seed,
            ),
            cancelled=cancelled,
            clock=self._clock,
            power=self._engine.power,
        )
        printer = ReplyPrinter(self._out)
        try:
            for events in generation:
                printer.show(events)
        finally:
            printer.end_line()
        return Answer(
            tokens=list(generation.tokens),
            cause=generation.cause,
            thinking_only=thinking and not turn.thinking_closed,
            statistics=TurnStatistics(
                reused=synced.reused,
                prefilled=synced.evaluated,
                generated=len(generation.tokens),
                prefill_seconds=prefilled - started,
                generation_seconds=self._clock() - prefilled,
            ),
        )


def ending_note(answer: Answer, settings: ChatSettings, context: int) -> str | None:
    """A line for an answer that ended before the model wanted it to; None for one that is whole."""
    if answer.cause != "length":
        return None
    place = " while still thinking" if answer.thinking_only else ""
    if len(answer.tokens) >= settings.max_tokens:
        return f"stopped at the limit of {settings.max_tokens} tokens{place}: -n raises it"
    return f"stopped{place}: the context of {context} tokens is full, --ctx (or /ctx) makes it larger"
