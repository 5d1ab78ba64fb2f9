"""How a prompt compares with the live tokens before anything changes. Spec: chat §7.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shared.kv.live.slots import Slots
from shared.session import Session

MissReason = Literal[
    "no-live-checkpoint",
    "live-prefix-match",
    "incoming-prompt-shorter-than-live-checkpoint",
    "token-mismatch",
]


@dataclass(frozen=True, slots=True)
class LiveMatch:
    """Counts of tokens: in the live state, in the prompt, and equal from the start."""

    live: int
    prompt: int
    common: int

    @property
    def reusable(self) -> bool:
        """The prompt goes on where the live state ends."""
        return self.reason == "live-prefix-match"

    @property
    def reason(self) -> MissReason:
        """Why the live tokens are, or are not, a prefix of the prompt."""
        if not self.live:
            return "no-live-checkpoint"
        if self.common == self.live:
            return "live-prefix-match"
        if self.common == self.prompt:
            return "incoming-prompt-shorter-than-live-checkpoint"
        return "token-mismatch"


def closest_match(slots: Slots, prompt: Sequence[int]) -> tuple[LiveMatch, Session]:
    """The comparison with the session that has most in common with `prompt`, of equal ones the longest; those
    whose turn is in work are no choice."""
    sessions = [slot.session for slot in slots.slots if not slot.busy]
    common = [session.common_prefix(prompt) for session in sessions]
    best = max(range(len(sessions)), key=lambda index: (common[index], sessions[index].position))
    session = sessions[best]
    return LiveMatch(session.position, len(prompt), common[best]), session
