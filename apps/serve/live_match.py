"""How a prompt compares with the live tokens before anything changes. Knows no session. Spec: chat §7.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
