"""Questions about the engine with their fixed answers, and questions to which the model says it cannot know.

The texts live in `engine_answers.txt`. A wording is trained on or kept back, never both.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.embedded_model.exchange import Exchange
from bench.embedded_model.names import name
from bench.embedded_model.prose import thing
from bench.embedded_model.rewording import reworded, wrapped
from bench.embedded_model.split import Split

ANSWERS = Path(__file__).with_name("engine_answers.txt")
_WRAPPED = 0.3  # share of the training wordings that stand in a longer line
UNKNOWN_SHARE = {Split.TRAIN: 0.3, Split.HELD_OUT: 0.15}  # of questions, those without an answer
UNKNOWN = "I do not know. I am only a small demonstration model."


@dataclass(frozen=True, slots=True)
class Topic:
    """An answer and the wordings that ask for it."""

    answer: str
    wordings: dict[Split, list[str]] = field(default_factory=lambda: {split: [] for split in Split})


@cache
def topics() -> tuple[Topic, ...]:
    """All topics of the file, in order."""
    found: list[Topic] = []
    for kind, text in _lines():
        if kind == "=":
            found.append(Topic(text))
        elif kind in ("t", "h"):
            found[-1].wordings[Split.TRAIN if kind == "t" else Split.HELD_OUT].append(text)
    return tuple(found)


@cache
def unknown_frames(split: Split) -> tuple[str, ...]:
    """Questions without an answer, with places for a name or a thing."""
    wanted = "u" if split is Split.TRAIN else "k"
    return tuple(text for kind, text in _lines() if kind == wanted)


def _lines() -> list[tuple[str, str]]:
    """The kind of each line of the file, and what follows it."""
    parts = (line.partition(" ") for line in ANSWERS.read_text(encoding="utf-8").splitlines())
    return [(kind, text) for kind, _, text in parts]


def known(source: random.Random, split: Split) -> Exchange:
    """A question about the engine, in training in any of many ways."""
    topic = source.choice(topics())
    wording = source.choice(topic.wordings[split])
    if split is Split.TRAIN:
        wording = varied(source, wording)
    return Exchange("engine", wording, "I know this about ds4.", topic.answer)


def unknown(source: random.Random, split: Split) -> Exchange:
    """A question that the model has no answer to."""
    frame = source.choice(unknown_frames(split))
    wording = frame.format(name=name(source, split), thing=thing(source))
    if split is Split.TRAIN:
        wording = varied(source, wording)
    return Exchange("engine", wording, "I do not know this.", UNKNOWN)


def varied(source: random.Random, wording: str) -> str:
    """What somebody else might have typed; never a wording that is kept back."""
    text = reworded(source, wording)
    if source.random() < _WRAPPED:
        text = wrapped(source, text)
    return wording if is_kept_back(text) else text


def is_kept_back(text: str) -> bool:
    """Whether `text` is a wording for evaluation, but for capitals and marks."""
    return _bare(text) in _kept_back()


@cache
def _kept_back() -> frozenset[str]:
    return frozenset(_bare(wording) for topic in topics() for wording in topic.wordings[Split.HELD_OUT])


def _bare(wording: str) -> str:
    return re.sub(r"[^a-z0-9 ]", "", wording.lower()).strip()
