"""What one `ds4 chat` was asked to do, as values. Knows no engine and no terminal."""

from __future__ import annotations

from dataclasses import dataclass

from shared.sampling import Sampling
from shared.text.effort import Effort


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Settings of every turn. `seed` None means another one for each turn."""

    context: int
    system: str
    effort: Effort
    sampling: Sampling
    max_tokens: int
    seed: int | None = None

    def seed_of_turn(self, turn: int) -> int | None:
        """A fixed seed gives each turn its own random stream, the same in every run."""
        return None if self.seed is None else self.seed + turn
