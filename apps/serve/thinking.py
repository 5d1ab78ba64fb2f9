"""Whether and how hard a request thinks, from the controls that clients send in several spellings.

Spec: chat §4.1. Knows no endpoint's schema.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.text.effort import Effort, resolve_effort

# Model names that DeepSeek's own API gives a meaning.
_ALIASES: Final = {"deepseek-chat": False, "deepseek-reasoner": True}


@dataclass(frozen=True, slots=True)
class ThinkingControls:
    """What a request said. `explicit` holds that a switch was present, even as null: it cancels the
    meaning of a model's name."""

    enabled: bool | None
    explicit: bool
    effort: str | None

    @classmethod
    def of(
        cls, body: Mapping[str, Any], effort: str | None, *, switches: Collection[str] = ("thinking", "think")
    ) -> ThinkingControls:
        """From a raw body, in which the fields `switches` turn thinking on and off; of several the last
        counts."""
        enabled: bool | None = None
        present = [name for name in body if name in switches]
        for name in present:
            said = _switch(body[name])
            enabled = enabled if said is None else said
        return cls(enabled, bool(present), effort)

    @classmethod
    def of_effort(cls, effort: str | None) -> ThinkingControls:
        """From an effort alone, whose presence cancels the meaning of a model's name."""
        return cls(None, effort is not None, effort)


@dataclass(frozen=True, slots=True)
class ThinkingDefaults:
    """What holds when a request says nothing, and what the model can do."""

    thinking: bool
    effort: Effort
    profile: str
    context: int
    pro: bool


def choose_effort(
    controls: ThinkingControls, model: str | None, defaults: ThinkingDefaults
) -> tuple[Effort, str | None]:
    """The effort of the turn (`none`: no thinking), and a note if it is not the one asked for.

    Raises RequestError for an effort that does not exist, even where thinking is off.
    """
    enabled = defaults.thinking
    if model in _ALIASES and not controls.explicit:
        enabled = _ALIASES[model]
    if controls.enabled is not None:
        enabled = controls.enabled
    requested = controls.effort if controls.effort is not None else defaults.effort
    effort, note = resolve_effort(requested, defaults.profile, defaults.context, pro=defaults.pro)
    if not enabled or effort == "none":
        return "none", None
    return effort, note


def _switch(value: Any) -> bool | None:
    """True or False where the value decides; other forms (such as `adaptive`) leave things as they are."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        kind = value.get("type")
        return {"enabled": True, "disabled": False}.get(kind) if isinstance(kind, str) else None
    return None
