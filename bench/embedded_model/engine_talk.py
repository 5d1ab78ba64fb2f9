"""Questions about the engine with their fixed answers, and questions to which the model says it cannot know.

The texts live in `engine_answers.txt`. A wording is trained on or kept back, never both.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.embedded_model.exchange import Exchange
from bench.embedded_model.names import name
from bench.embedded_model.prose import thing
from bench.embedded_model.split import Split

ANSWERS = Path(__file__).with_name("engine_answers.txt")
UNKNOWN = "I do not know. I am only a small demonstration model."

_UNKNOWN_FRAMES = {
    Split.TRAIN: (
        "What is the capital of {name}?",
        "Who wrote the book {name}?",
        "When was {name} born?",
        "How far is it to {name}?",
        "Why is the {thing} so heavy?",
        "Who invented the {thing}?",
        "Write a poem about a {thing}.",
        "Translate {thing} into French.",
        "What is the meaning of life?",
        "Tell me a joke about a {thing}.",
        "Who won the election in {name}?",
        "What is the price of a {thing}?",
        "Write a program that sorts a list.",
        "How tall is {name}?",
        "How do I cook a {thing}?",
        "Is {name} a good city?",
        "What colour is the sky?",
        "Who is {name}?",
        "How do I repair a {thing}?",
        "What happened in {name} last year?",
    ),
    Split.HELD_OUT: (
        "Which river flows through {name}?",
        "How old is {name}?",
        "Give me a story about a {thing}.",
        "How much does a {thing} weigh?",
        "Who was the first king of {name}?",
        "What is a {thing} made of?",
        "Compose a song for {name}.",
        "Where can I buy a {thing}?",
    ),
}
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
    for line in ANSWERS.read_text(encoding="utf-8").splitlines():
        kind, _, text = line.partition(" ")
        if kind == "=":
            found.append(Topic(text))
        elif kind in ("t", "h"):
            found[-1].wordings[Split.TRAIN if kind == "t" else Split.HELD_OUT].append(text)
    return tuple(found)


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
    frame = source.choice(_UNKNOWN_FRAMES[split])
    wording = frame.format(name=name(source, split), thing=thing(source))
    if split is Split.TRAIN:
        wording = _varied(source, wording)
    return Exchange("engine", wording, "I do not know this.", UNKNOWN)


def _varied(source: random.Random, wording: str) -> str:
    lead = source.choice(_LEADS[Split.TRAIN])
    chance = source.random()
    if chance < 0.15:
        wording = wording.lower()
    elif chance < 0.3:
        wording = wording.rstrip("?.!")
    return lead + wording
