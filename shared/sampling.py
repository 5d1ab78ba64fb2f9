"""How a token is chosen from logits: the settings, the random stream and the float64 reference choice.

Knows logits and token ids only, nothing of text, models or backends. Given the same float32 logits,
every backend's own `pick` chooses what `choose` chooses. Spec: model §6.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

TOP_K_LIMIT = 1024
_LOWEST = -1e30  # an argmax must beat this
_MASK_64 = 2**64 - 1
_STATE_FOR_ZERO = 0x9E3779B97F4A7C15
_MULTIPLIER = 0x2545F4914F6CDD1D


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen. `temperature` <= 0 is greedy; `top_k` 0 means unlimited."""

    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.05
    top_k: int = 0

    @property
    def greedy(self) -> bool:
        return not self.temperature > 0


GREEDY = Sampling(temperature=0.0)


def effective_sampling(requested: Sampling, thinking: bool) -> Sampling:
    """What a turn really uses: while thinking is on the defaults apply to the whole turn, the answer
    included, whatever was requested; only a requested temperature of 0 is honoured. Spec: chat §4."""
    if not thinking or requested.greedy:
        return requested
    return Sampling()


class RandomStream:
    """xorshift64*: the same seed gives the same draws on every machine. Seed 0 stands for a fixed state."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK_64 or _STATE_FOR_ZERO

    def uniform(self) -> float:
        """The next draw in [0, 1): the top 24 bits of the output, over 2^24."""
        state = self._state
        state ^= state >> 12
        state ^= (state << 25) & _MASK_64
        state ^= state >> 27
        self._state = state
        return ((state * _MULTIPLIER & _MASK_64) >> 40) / 2**24


class TokenLogprob(NamedTuple):
    """A token, its logit and its natural log-probability at temperature 1."""

    token: int
    logit: float
    logprob: float


def choose(
    logits: npt.NDArray[np.float32],
    sampling: Sampling,
    uniform: float = 0.0,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> int:
    """The token chosen from float32 `logits` [vocabulary] by `uniform` in [0, 1), computed in float64.

    `allowed` [vocabulary] masks tokens out; non-finite logits are never chosen. Raises ValueError for an
    empty vocabulary, a mask of another length, or a mask that allows nothing.
    """
    candidates = _candidates(logits, allowed)
    if candidates.size == 0:
        return _first_allowed(allowed)
    values = logits[candidates].astype(np.float64)
    best = int(np.argmax(values))
    if sampling.greedy:
        return int(candidates[best] if values[best] > _LOWEST else _first_allowed(allowed))
    with np.errstate(over="ignore"):  # a temperature near 0 sends everything but the best to -inf
        weights = np.exp((values - values[best]) / sampling.temperature)
    top_p = sampling.top_p if 0 < sampling.top_p <= 1 else 1.0
    min_p = sampling.min_p  # one below 0 drops nothing
    if sampling.top_k <= 0 and top_p == 1.0:
        kept = np.flatnonzero(weights >= min_p)  # in vocabulary order
        return int(candidates[_draw(kept, weights, uniform, fallback=best)])
    count = min(sampling.top_k, TOP_K_LIMIT, values.size) if sampling.top_k > 0 else values.size
    kept = _nucleus(values, weights, count, top_p, min_p)
    return int(candidates[_draw(kept, weights, uniform, fallback=int(kept[-1]))])


def top_logprobs(logits: npt.NDArray[np.float32], count: int) -> list[TokenLogprob]:
    """The `count` most probable tokens, best first, the lower id first on ties; finite logits only."""
    finite = np.flatnonzero(np.isfinite(logits))
    if finite.size == 0 or count <= 0:
        return []
    values = logits[finite].astype(np.float64)
    normaliser = _log_sum_exp(values)
    return [
        TokenLogprob(int(finite[i]), float(values[i]), float(values[i] - normaliser))
        for i in _descending(values, min(count, values.size))
    ]


def token_logprob(logits: npt.NDArray[np.float32], token: int) -> float:
    """The log-probability of `token` over the whole vocabulary; -inf where its logit is not finite."""
    if not 0 <= token < logits.size:
        raise ValueError(f"token {token} is outside the vocabulary of {logits.size}")
    if not np.isfinite(logits[token]):
        return -math.inf
    return float(logits[token]) - _log_sum_exp(logits[np.isfinite(logits)].astype(np.float64))


def _candidates(
    logits: npt.NDArray[np.float32], allowed: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.intp]:
    """Ids with a finite logit that the mask allows, in vocabulary order."""
    if logits.size == 0:
        raise ValueError("there is nothing to choose from: the logits are empty")
    eligible = np.isfinite(logits)
    if allowed is not None:
        if allowed.shape != logits.shape:
            raise ValueError(f"the mask has {allowed.size} entries for {logits.size} logits")
        if not allowed.any():
            raise ValueError("the mask allows no token")
        eligible &= allowed
    return np.flatnonzero(eligible)


def _first_allowed(allowed: npt.NDArray[np.bool_] | None) -> int:
    return 0 if allowed is None else int(np.argmax(allowed))


def _nucleus(
    values: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    count: int,
    top_p: float,
    min_p: float,
) -> npt.NDArray[np.intp]:
    """Indexes kept of the `count` largest values, in descending order: up to the first below
    `min_p` of the best, or up to the one that brings the share to `top_p`, that one included."""
    total = float(weights.sum()) if count == values.size else 0.0
    block = min(count, TOP_K_LIMIT)
    while True:
        order = _descending(values, block)
        if count <= block and not total:
            total = float(weights[order].sum())
        shares = weights[order] / total
        below = np.flatnonzero(shares[1:] < min_p * shares[0])
        enough = np.flatnonzero(np.add.accumulate(shares) >= top_p)
        if below.size or enough.size or block == count:
            # `below` counts from the second candidate, `enough` includes the one that it names.
            ends = [block, *(below[:1] + 1), *(enough[:1] + 1)]
            return order[: min(ends)]
        # A flat distribution: the cut lies further down.
        block = min(count, block * 8)


def _descending(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.intp]:
    """Indexes of the `count` largest values, largest first, the lower index first on ties."""
    if count < values.size:
        last = np.partition(values, values.size - count)[values.size - count]
        above = np.flatnonzero(values > last)
        chosen = np.concatenate([above, np.flatnonzero(values == last)[: count - above.size]])
    else:
        chosen = np.arange(values.size)
    return chosen[np.argsort(-values[chosen], kind="stable")]


def _draw(
    kept: npt.NDArray[np.intp], weights: npt.NDArray[np.float64], uniform: float, *, fallback: int
) -> int:
    """The first kept index at which `uniform` of the total weight is used up."""
    if kept.size == 0:
        return fallback
    ends = np.add.accumulate(weights[kept])
    reached = int(np.searchsorted(ends, uniform * ends[-1]))
    return int(kept[reached]) if reached < kept.size else fallback


def _log_sum_exp(values: npt.NDArray[np.float64]) -> float:
    largest = float(values.max())
    return largest + math.log(float(np.exp(values - largest).sum()))
