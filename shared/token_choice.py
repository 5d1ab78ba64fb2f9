"""How the next token of an answer is chosen: the sampling of the moment, a mask, penalties on repetition.

Knows a session, token ids and logits; nothing of text. What a mask allows is for `TokenMasks` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from shared.sampling import RandomStream, Sampling, TokenLogprob, choose, token_logprob, top_logprobs
from shared.session import Picked, Session


class TurnState(Protocol):
    """What masks depend on beside the tokens: a whole call stands in thinking that is still open."""

    @property
    def held_call(self) -> bool: ...


class TokenMasks(Protocol):
    """What the tokens of one answer must be. Asked before each token, told of it afterwards."""

    def allowed(self, turn: TurnState) -> npt.NDArray[np.bool_] | None:
        """The tokens that may come next, at least one; None if all may. [vocabulary]"""
        ...

    def take(self, token: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Penalties:
    """What the logit of a token loses that the answer already holds: `frequency` for each time that it does,
    `presence` once. Negative ones favour repetition."""

    frequency: float = 0.0
    presence: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.frequency or self.presence)


NO_PENALTIES: Final = Penalties()


@dataclass(frozen=True, slots=True)
class KnownToken(Picked):
    """A token that was chosen here and not by the session: to be submitted as its id."""

    token: int

    def value(self) -> int:
        return self.token


class TokenChooser:
    """Chooses the tokens of one answer. With `top_logprobs`, `scores` tells after each choice how probable
    every token was in the model's own distribution, before any mask, penalty or temperature."""

    def __init__(
        self,
        session: Session,
        vocabulary_size: int,
        random: RandomStream,
        *,
        penalties: Penalties,
        masks: TokenMasks | None,
        top_logprobs: int | None,
    ) -> None:
        self._session = session
        self._size = vocabulary_size
        self._random = random
        self._penalties = penalties
        self._masks = masks
        self._top = top_logprobs
        self._counts: npt.NDArray[np.float32] | None = None
        self._logits: npt.NDArray[np.float32] | None = None

    def choose(self, sampling: Sampling, turn: TurnState, *, penalised: bool) -> Picked:
        """The next token. `penalised`: the penalties hold here, as they do not where the syntax of a call is
        written."""
        uniform = 0.0 if sampling.greedy else self._random.uniform()
        allowed = self._masks.allowed(turn) if self._masks is not None else None
        if self._top is not None:
            self._logits = self._session.logits()
        if penalised and self._counts is not None:
            return KnownToken(choose(self._penalised(self._counts), sampling, uniform, allowed))
        if allowed is None and (self._top is not None or self._penalties):
            # A step under a mask is one token: each of them is looked at here.
            allowed = np.ones(self._size, np.bool_)
        return self._session.pick(sampling, uniform, allowed)

    def take(self, token: int) -> None:
        """`token` became part of the answer."""
        if self._masks is not None:
            self._masks.take(token)
        if self._penalties:
            if self._counts is None:
                self._counts = np.zeros(self._size, np.float32)
            self._counts[token] += 1

    def scores(self, token: int) -> tuple[float, Sequence[TokenLogprob]]:
        """The log probability of the token chosen last, and the best alternatives, itself included."""
        assert self._logits is not None, "log probabilities were not asked for"
        assert self._top is not None
        best = top_logprobs(self._logits, self._top)
        # Most tokens are among the best: the sum over the vocabulary is not made twice then.
        found = next((scored.logprob for scored in best if scored.token == token), None)
        return token_logprob(self._logits, token) if found is None else found, best

    def _penalised(self, counts: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        penalties = self._penalties
        held = (counts > 0).astype(np.float32)
        return self._session.logits() - (penalties.frequency * counts + penalties.presence * held)
