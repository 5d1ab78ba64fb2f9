"""Answers the same prompts at several scales, to be read side by side. Spec: apps §9.

Knows engines; nothing of option names and of how answers are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps.steer.build import prompt_tokens
from shared.errors import Cancelled, ContextFullError
from shared.generate import Generation, GenerationSettings
from shared.model.file_engine import FileEngine
from shared.sampling import GREEDY
from shared.session import CancelCheck, Session
from shared.steering.steering import Steering
from shared.text.effort import Effort
from shared.text.events import TextDelta, ThinkingDelta
from shared.text.turn import Turn


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """`tokens` is the most of one answer."""

    context: int
    system: str
    think: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class SweepAnswer:
    """What was answered at one scale of the experts' outputs."""

    prompt: str
    scale: float
    thinking: str
    text: str
    tokens: int
    finished: bool

    @property
    def words(self) -> int:
        """Of the answer itself."""
        return len(self.text.split())


def sweep(
    engine: FileEngine,
    steering: Steering,
    prompts: Sequence[str],
    scales: Sequence[float],
    settings: SweepSettings,
    *,
    cancelled: CancelCheck,
) -> Iterator[SweepAnswer]:
    """Greedy answers, prompt by prompt and scale by scale. Raises ContextFullError before any work,
    Cancelled."""
    effort: Effort = "high" if settings.think else "none"
    encoded = [prompt_tokens(engine, prompt, settings.system, effort) for prompt in prompts]
    if (longest := max(map(len, encoded))) >= settings.context:
        raise ContextFullError(longest, settings.context)
    session = engine.open_session(settings.context)
    try:
        for prompt, tokens in zip(prompts, encoded, strict=True):
            for scale in scales:
                engine.steer(steering.with_feed_forward(scale))
                generation, thinking, text = _answer(engine, session, tokens, settings, cancelled)
                finished = generation.cause != "length"
                yield SweepAnswer(prompt, scale, thinking, text, generation.completion_tokens, finished)
    finally:
        session.close()


def _answer(
    engine: FileEngine, session: Session, tokens: list[int], settings: SweepSettings, cancelled: CancelCheck
) -> tuple[Generation, str, str]:
    session.sync(tokens, cancelled=cancelled)
    generation = Generation(
        session,
        engine.tokenizer,
        Turn(thinking=settings.think, tools=None),
        GenerationSettings(GREEDY, min(settings.tokens, session.context - len(tokens) - 1)),
        cancelled=cancelled,
        power=engine.power,
    )
    thinking, text = "", ""
    for events in generation:
        for event in events:
            if isinstance(event, ThinkingDelta):
                thinking += event.text
            elif isinstance(event, TextDelta):
                text += event.text
    if generation.cause == "cancelled":
        raise Cancelled
    return generation, thinking, text
