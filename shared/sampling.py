"""Sampling settings (the algorithm and the random stream join them here). Spec: model §6.1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen. `temperature` <= 0 is greedy; `top_k` 0 means unlimited."""

    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.05
    top_k: int = 0


GREEDY = Sampling(temperature=0.0)
