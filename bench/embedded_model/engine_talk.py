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
from bench.embedded_model.split import Split

ANSWERS = Path(__file__).with_name("engine_answers.txt")
UNKNOWN = "I do not know. I am only a small demonstration model."

# Other ways to ask what begins with "How do I" or "How can I".
_HOW = re.compile(r"How (?:do|can) I (.+)\?")
_WAYS = (
    "How do I {}?",
    "How can I {}?",
    "How would I {}?",
    "{}?",
    "{}",
    "I want to {}.",
    "I need to {}, please help.",
    "Tell me how to {}.",
    "Explain how to {}.",
    "What must I do to {}?",
    "Is there a way to {}?",
    "Please show me the way to {}.",
    "{}: what is the command?",
    "{}. What is the command?",
    "{}: how does that work?",
    "{} - how do I do that?",
    "{}. Please tell me how.",
    "{}, which way?",
    "{}! Is that possible?",
)
_LEADS = {
    Split.TRAIN: ("", "", "", "", "Please tell me: ", "Hello. ", "A question: ", "Hi! ", "One more thing: "),
    Split.HELD_OUT: ("",),
}


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
    """A question about the engine. In training it may come with a greeting, in small letters or without its
    question mark."""
    topic = source.choice(topics())
    wording = source.choice(topic.wordings[split])
    if split is Split.TRAIN:
        wording = _varied(source, wording)
    return Exchange("engine", wording, "I know this about ds4.", topic.answer)


def unknown(source: random.Random, split: Split) -> Exchange:
    """A question that the model has no answer to."""
    frame = source.choice(unknown_frames(split))
    wording = frame.format(name=name(source, split), thing=thing(source))
    if split is Split.TRAIN:
        wording = _varied(source, wording)
    return Exchange("engine", wording, "I do not know this.", UNKNOWN)


def _varied(source: random.Random, wording: str) -> str:
    varied = wording
    asked = _HOW.fullmatch(wording)
    if asked and source.random() < 0.4:
        other = source.choice(_WAYS).format(asked[1])
        varied = other[0].upper() + other[1:]
    chance = source.random()
    if chance < 0.15:
        varied = varied.lower()
    elif chance < 0.3:
        varied = varied.rstrip("?.!")
    varied = source.choice(_LEADS[Split.TRAIN]) + varied
    return wording if _bare(varied) in _kept_back() else varied


@cache
def _kept_back() -> frozenset[str]:
    return frozenset(_bare(wording) for topic in topics() for wording in topic.wordings[Split.HELD_OUT])


def _bare(wording: str) -> str:
    return re.sub(r"[^a-z0-9 ]", "", wording.lower()).strip()
