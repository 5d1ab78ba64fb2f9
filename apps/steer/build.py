"""Finds directions by showing a model pairs of prompts. Spec: apps §9.

Knows engines and prompts as text; nothing of option names and of the form of files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.errors import Cancelled, ContextFullError
from shared.model.file_engine import FileEngine
from shared.session import CancelCheck, Engine
from shared.steering.direction_builder import DirectionBuilder
from shared.steering.directions import Component, Directions
from shared.text.effort import Effort
from shared.text.transcript import Transcript


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What outputs are kept, after which kind of prompt, and what is made of them."""

    context: int
    system: str
    component: Component
    think: bool
    pair_normalize: bool
    orthogonalize: bool


def prompt_tokens(engine: Engine, prompt: str, system: str, effort: Effort) -> list[int]:
    """A chat of one message, up to the mark behind which the model thinks or answers."""
    transcript = Transcript(engine.tokenizer, effort=effort, profile=engine.effort_profile, system=system)
    transcript.add_user(prompt)
    transcript.begin_answer()
    return transcript.tokens


def build_directions(
    engine: FileEngine,
    pairs: Sequence[tuple[str, str]],
    settings: BuildSettings,
    *,
    told: Callable[[int], object],
    cancelled: CancelCheck,
) -> Directions:
    """From the outputs behind the last token of each good prompt and each bad one; `told` hears how many
    pairs are done. Raises ContextFullError before any work, Cancelled, NoDirection."""
    effort: Effort = "high" if settings.think else "none"
    encoded = [
        (
            prompt_tokens(engine, good, settings.system, effort),
            prompt_tokens(engine, bad, settings.system, effort),
        )
        for good, bad in pairs
    ]
    longest = max(len(tokens) for pair in encoded for tokens in pair)
    if longest >= settings.context:
        raise ContextFullError(longest, settings.context)
    builder = DirectionBuilder(settings.pair_normalize, settings.orthogonalize)
    session = engine.open_session(settings.context)
    try:
        for good, bad in encoded:
            if cancelled():
                raise Cancelled
            outputs = [
                engine.last_outputs(session, tokens, settings.component, cancelled) for tokens in (good, bad)
            ]
            builder.add(*outputs)
            told(builder.pairs)
    finally:
        session.close()
    return Directions.of(builder.build())
