"""What is trained on when: short and near first, long and far later."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.embedded_model.conversation import Mixture


@dataclass(frozen=True, slots=True)
class Stage:
    """Until so many tokens have been seen: shares of sequence lengths, mixtures, and the model's manner.

    Early steps are small: there is more to gain from many of them than from exact gradients."""

    name: str
    until: float  # millions of tokens
    lengths: tuple[tuple[int, float], ...]
    step: int  # tokens of one step, about
    short: Mixture  # of sequences under LONG tokens
    long: Mixture
    grafted: bool = False  # begins with a graft: see `graft`
    teaching: bool = False  # the indexer learns
    choosing: bool = False  # and is obeyed
    rounded: bool = False  # cached rows and weights are rounded as in the engine and in its files


LONG = 700
END = 13.65  # millions of tokens; learning rates fall to nothing from DECAY on
DECAY = 9.2

STAGES = (
    Stage(
        "near",
        2.2,
        ((256, 0.6), (1024, 0.4)),
        2048,
        short=Mixture(engine=4, numbers=3, recall=4, tools=0, longest_repeat=24),
        long=Mixture(engine=0, numbers=1, recall=2, tools=7, longest_repeat=40),
    ),
    Stage(
        "beyond the window",
        5.0,
        ((256, 0.35), (512, 0.25), (1024, 0.4)),
        3072,
        short=Mixture(engine=4, numbers=4, recall=3, tools=0, longest_repeat=14),
        long=Mixture(engine=0, numbers=0, recall=2, tools=7),
        grafted=True,
        teaching=True,
    ),
    Stage(
        "far",
        6.2,
        ((256, 0.3), (1024, 0.35), (2048, 0.2), (4096, 0.15)),
        6144,
        short=Mixture(engine=6, numbers=3, recall=2, tools=0),
        long=Mixture(engine=0, numbers=0, recall=3, tools=7),
        teaching=True,
        choosing=True,
    ),
    Stage(
        "as the engine sees it",
        7.85,
        ((256, 0.4), (1024, 0.42), (2048, 0.14), (6144, 0.04)),
        6144,
        short=Mixture(engine=8, numbers=3, recall=2, tools=0),
        long=Mixture(engine=0, numbers=0, recall=1, tools=9),
        teaching=True,
        choosing=True,
        rounded=True,
    ),
    Stage(
        "questions",
        13.2,
        ((256, 0.7), (1024, 0.25), (4096, 0.05)),
        4096,
        short=Mixture(engine=9, numbers=3, recall=2, tools=0),
        long=Mixture(engine=0, numbers=0, recall=3, tools=7),
        teaching=True,
        choosing=True,
        rounded=True,
    ),
    Stage(
        "all together",
        1e9,
        ((256, 0.55), (1024, 0.4), (4096, 0.05)),
        4096,
        short=Mixture(engine=7, numbers=5, recall=2, tools=0),
        long=Mixture(engine=0, numbers=0, recall=2, tools=8),
        teaching=True,
        choosing=True,
        rounded=True,
    ),
)


def stage_at(tokens: int) -> Stage:
    """The stage after `tokens` tokens."""
    return next(stage for stage in STAGES if tokens < stage.until * 1e6)


def rate_at(tokens: int) -> float:
    """The share of the full learning rates after `tokens` tokens."""
    left = (END - tokens / 1e6) / (END - DECAY)
    return min(1.0, max(0.0, left))


def draw_length(source: random.Random, stage: Stage) -> int:
    """A sequence length for one step."""
    lengths, shares = zip(*stage.lengths, strict=True)
    return int(source.choices(lengths, shares)[0])


def mixture_for(stage: Stage, length: int) -> Mixture:
    """What sequences of this length are made of."""
    return stage.long if length >= LONG else stage.short
