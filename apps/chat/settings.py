"""What one `ds4 chat` was asked to do, as values. Knows no engine and no terminal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared.text.effort import Effort

if TYPE_CHECKING:
    from shared.sampling import Sampling

# Instead of a session's id: the one that was saved last.
NEWEST: Final = "newest"


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


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Where conversations are saved (None: the user's data directory), whether by themselves, and which one
    to go on with: None for a new one, NEWEST, or the beginning of an id."""

    directory: Path | None = None
    autosave: bool = True
    resume: str | None = None
