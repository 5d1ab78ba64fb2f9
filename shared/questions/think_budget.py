"""A limit to thinking, so that tokens are left for the answer. Spec: apps §3.4.

Owns when `</think>` is forced, and how thinking came to its end. Knows a session's logits, no text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from shared.session import Session
from shared.token_choice import TurnState

CloseKind = Literal["natural", "soft_forced", "hard_forced", "none"]


@dataclass(frozen=True, slots=True)
class ThinkLimits:
    """Of `tokens` in all, the last `hard` are kept for the answer; in the last `soft`, `</think>` is taken as
    soon as it is one of the `rank` best tokens."""

    tokens: int
    soft: int
    hard: int
    rank: int


@dataclass(frozen=True, slots=True)
class ThinkClose:
    """How thinking ended: `index` is the place of `</think>` among the generated tokens, `remaining` the
    budget before it, `rank` its place among the best tokens (1 is the best) where it was forced; -1 where
    there is none."""

    kind: CloseKind = "none"
    index: int = -1
    remaining: int = -1
    rank: int = -1


NOT_CLOSED: Final = ThinkClose()


class Thinking(Protocol):
    """What tells whether a turn still thinks."""

    @property
    def thinking_closed(self) -> bool: ...


class ThinkBudget:
    """The masks of one answer (see `TokenMasks`): none but where thinking must end."""

    def __init__(self, session: Session, turn: Thinking, think_end: int, limits: ThinkLimits) -> None:
        self.close = NOT_CLOSED
        self._session = session
        self._turn = turn
        self._think_end = think_end
        self._limits = limits
        self._taken = 0
        self._forced: ThinkClose | None = None
        self._closed = turn.thinking_closed

    @property
    def remaining(self) -> int:
        """Tokens that are left of the whole budget."""
        return self._limits.tokens - self._taken

    def allowed(self, turn: TurnState) -> npt.NDArray[np.bool_] | None:
        """`</think>` alone where thinking must end, else None. [vocabulary]"""
        self._forced = None
        if self._closed or self.remaining > self._limits.soft:
            return None
        logits = self._session.logits()
        rank = 1 + int(np.count_nonzero(logits > logits[self._think_end]))
        hard = self.remaining <= self._limits.hard
        if not hard and rank > self._limits.rank:
            return None
        self._forced = ThinkClose("hard_forced" if hard else "soft_forced", self._taken, self.remaining, rank)
        mask = np.zeros(logits.size, np.bool_)
        mask[self._think_end] = True
        return mask

    def take(self, token: int) -> None:
        """`token` became part of the answer."""
        if not self._closed and token == self._think_end:
            self._closed = True
            self.close = self._forced or ThinkClose("natural", self._taken, self.remaining)
        self._taken += 1
