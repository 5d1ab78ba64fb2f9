"""`--perplexity-file`: how well the model predicts a text. Knows sessions; nothing of the terminal.

Spec: apps §1.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.errors import UsageError
from shared.sampling import token_logprob
from shared.session import CancelCheck, Session

PREFILLED_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Perplexity:
    """`scored` of `tokens` tokens, and the sum of their negative log-likelihoods (nats)."""

    tokens: int
    scored: int
    nll: float

    def line(self) -> str:
        """The one line of output; an infinite likelihood prints as `inf`."""
        average = self.nll / self.scored
        try:
            perplexity = math.exp(average)
        except OverflowError:
            perplexity = math.inf
        return (
            f"tokens={self.tokens} scored={self.scored} nll={self.nll:.9f} avg_nll={average:.9f} "
            f"ppl={perplexity:.9f}"
        )


def perplexity(
    session: Session,
    tokens: Sequence[int],
    *,
    limit: int,
    progress: Callable[[int, int], None],
    cancelled: CancelCheck,
) -> Perplexity:
    """Prefill the first 32 `tokens` and score the rest one by one, at most `limit` and as many as the
    context holds. Raises UsageError for a text that is too short, Cancelled."""
    from shared.errors import Cancelled

    if len(tokens) <= PREFILLED_TOKENS or session.context <= PREFILLED_TOKENS:
        raise UsageError(
            f"the text has {len(tokens)} tokens and the context holds {session.context}: "
            f"perplexity needs more than {PREFILLED_TOKENS} of both"
        )
    session.sync(tokens[:PREFILLED_TOKENS], cancelled=cancelled)
    scored = min(len(tokens), session.context) - PREFILLED_TOKENS
    scored = min(scored, limit)
    total = 0.0
    for done, token in enumerate(tokens[PREFILLED_TOKENS : PREFILLED_TOKENS + scored], start=1):
        if cancelled():
            raise Cancelled
        total -= token_logprob(session.logits(), token)
        if done < scored:
            session.submit(token)
        progress(done, scored)
    return Perplexity(len(tokens), scored, total)
