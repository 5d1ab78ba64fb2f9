"""Log probabilities of tokens as chat answers carry them, whole and in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shared.text.events import TextScores, TokenScore

# What stands for a token that is all but impossible: JSON has no infinity.
_LOWEST: Final = -9999.0


def logprobs_body(scores: Sequence[TextScores]) -> dict[str, Any] | None:
    """The `logprobs` member of a choice; None if it has no tokens."""
    if not scores:
        return None
    return {
        "content": _tokens(scores, thinking=False),
        "reasoning_content": _tokens(scores, thinking=True),
        "refusal": None,
    }


def _tokens(scores: Sequence[TextScores], *, thinking: bool) -> list[dict[str, Any]] | None:
    tokens = [token for part in scores if part.thinking is thinking for token in part.tokens]
    return [_scored(token) for token in tokens] or None


def _scored(token: TokenScore) -> dict[str, Any]:
    best = [_token(data, logprob) for data, logprob in token.top]
    return _token(token.data, token.logprob) | {"top_logprobs": best}


def _token(data: bytes, logprob: float) -> dict[str, Any]:
    """A part of a character shows as U+FFFD; its bytes tell what it is."""
    return {
        "token": data.decode("utf-8", "replace"),
        "logprob": max(logprob, _LOWEST),
        "bytes": list(data),
    }
