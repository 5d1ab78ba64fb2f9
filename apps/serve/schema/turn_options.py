"""What the bodies of all dialects say about sampling, budget and thinking, as settings of a turn.

Each dialect reads its own field names and hands the values over. Spec: chat §4. Knows no wire format.
"""

from __future__ import annotations

from dataclasses import dataclass

from apps.serve.settings import ServerSettings
from apps.serve.thinking import ThinkingControls, ThinkingDefaults, choose_effort
from apps.serve.turn_request import ModelFacts
from shared.generate import GenerationSettings
from shared.sampling import Sampling, effective_sampling
from shared.text.effort import Effort
from shared.token_choice import Penalties

_DEFAULTS = Sampling()
_TOP_K_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class SamplingFields:
    """Values as a client sent them, in any range; None where it sent nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None

    def penalties(self) -> Penalties:
        """Each within -2 and 2, as the sampling values are."""
        frequency, presence = self.frequency_penalty or 0.0, self.presence_penalty or 0.0
        return Penalties(min(max(frequency, -2.0), 2.0), min(max(presence, -2.0), 2.0))

    def sampling(self) -> Sampling:
        """Values outside their range mean what the nearest sensible one means."""
        top_p = self.top_p if self.top_p is not None else _DEFAULTS.top_p
        min_p = self.min_p if self.min_p is not None else _DEFAULTS.min_p
        return Sampling(
            temperature=self.temperature if self.temperature is not None else _DEFAULTS.temperature,
            top_p=top_p if 0 < top_p <= 1 else 1.0,
            min_p=max(0.0, min_p),
            top_k=min(max(0, self.top_k or 0), _TOP_K_LIMIT),
        )


def generation_settings(
    fields: SamplingFields,
    settings: ServerSettings,
    *,
    thinking: bool,
    max_tokens: int | None,
    stop: tuple[str, ...] = (),
    seed: int | None = None,
    top_logprobs: int | None = None,
) -> GenerationSettings:
    """How a turn is generated. A thinking turn keeps to the default sampling, but for the penalties; without
    `max_tokens` the server's own budget holds."""
    return GenerationSettings(
        sampling=effective_sampling(fields.sampling(), thinking),
        max_tokens=settings.max_tokens if max_tokens is None else max(0, max_tokens),
        stop=stop,
        seed=seed if seed is not None and seed > 0 else None,
        penalties=fields.penalties(),
        top_logprobs=top_logprobs,
    )


def turn_effort(
    controls: ThinkingControls, asked_model: str | None, model: ModelFacts, settings: ServerSettings
) -> tuple[Effort, str | None]:
    """How hard a turn thinks (`none`: not at all), and a note if that is not what was asked for. Raises
    RequestError for an effort that does not exist."""
    defaults = ThinkingDefaults(
        settings.thinking, settings.effort, model.effort_profile, model.context, pro=model.id.endswith("-pro")
    )
    return choose_effort(controls, asked_model, defaults)
