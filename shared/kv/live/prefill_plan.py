"""Where the prefill of a prompt stops on its way: to remember the state there, or to save it.

Owns positions only. Spec: kv §9.2. Must not know: sessions, slots, stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.kv.live.checkpoints import PointKind
from shared.kv.store.policy import StoreSettings, chat_anchor, continued_step, store_length
from shared.text.tokenizer import Specials

# The boundaries of the last user turns are all kept, of earlier ones those that lie apart, in tokens.
_LAST_TURNS: Final = 4
_TURNS_APART: Final = 2048
# Inside a long text: no edit costs more than so many tokens. A whole prefill step of most engines.
ON_THE_WAY_APART: Final = 4096


@dataclass(frozen=True, slots=True)
class Stop:
    """Evaluate up to `position`, and remember the state there if it has a `kind`."""

    position: int
    kind: PointKind | None


def cold_length(
    tokens: Sequence[int], reused: int, specials: Specials, settings: StoreSettings
) -> int | None:
    """At how many tokens the state of a new conversation is saved; None if it is not. Spec: kv §9.2.

    What is new is a prompt that reuses less than is worth a file: marks that all prompts begin with do not
    make it an old one.
    """
    count = len(tokens)
    if reused >= settings.min_tokens or not settings.min_tokens <= count <= settings.cold_max_tokens:
        return None
    anchor = chat_anchor(tokens, specials.user, specials.assistant, settings.min_tokens)
    length = store_length(count, settings) if anchor is None else anchor
    return length if length > reused else None


def plan_stops(
    tokens: Sequence[int], reused: int, cold: int | None, specials: Specials, settings: StoreSettings
) -> list[Stop]:
    """The stops behind the first `reused` tokens, in order; the last one is the end."""
    count = len(tokens)
    kinds = dict.fromkeys(range(0, count, ON_THE_WAY_APART), PointKind.ON_THE_WAY)
    step = continued_step(settings)
    if step:
        kinds |= dict.fromkeys(range(0, count, step), PointKind.ON_THE_WAY)
    if cold is not None:
        kinds[cold] = PointKind.ON_THE_WAY
    kinds |= dict.fromkeys(_turn_boundaries(tokens, specials.user), PointKind.USER)
    kinds[count - 1] = PointKind.PROMPT_END
    stops = [Stop(at, kind) for at, kind in sorted(kinds.items()) if reused < at < count]
    return [*stops, Stop(count, None)]


def _turn_boundaries(tokens: Sequence[int], user: int) -> list[int]:
    """Positions before user marks: what another turn, or another conversation, has in common."""
    every = [position for position, token in enumerate(tokens) if token == user]
    kept: list[int] = []
    for position in every[:-_LAST_TURNS]:
        if position - (kept[-1] if kept else 0) >= _TURNS_APART:
            kept.append(position)
    return kept + every[-_LAST_TURNS:]
