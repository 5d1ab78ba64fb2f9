"""Facts of the form Name=number, spread over prose, and the questions that ask for them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.embedded_model.exchange import Exchange
from bench.embedded_model.names import names
from bench.embedded_model.prose import sentence
from bench.embedded_model.split import Split

# A fact looks the same on both sides of the split: it is what the model is to recognise.
FACTS = (
    "{name} has the number {number}.",
    "The number of {name} is {number}.",
    "{name} was given the number {number}.",
    "Note: {name}={number}.",
)
_QUESTIONS = {
    Split.TRAIN: (
        "Which number has {}?",
        "What is the number of {}?",
        "Which number was given to {}?",
        "Tell me the number of {}.",
        "What number does {} have?",
        "{}: which number?",
        "For {}, what is the number?",
        "Where {} is named, what number stands there?",
        "Find {} and say the number.",
        "I forgot the number of {}, what is it?",
        "{} was given which one of the numbers?",
        "Is there a number for {}?",
        "Give me the number of {}, please.",
        "Please look in the text: what does {} have?",
        "The number of {}?",
        "Can you find what {} was given?",
        "And {}?",
    ),
    Split.HELD_OUT: (
        "Look up the number for {}.",
        "{} has which number?",
        "Do you recall the number of {}?",
    ),
}
_INTRODUCTION = {
    Split.TRAIN: ("Read this text. ", "Here is a text. ", "Keep the numbers in mind. ", ""),
    Split.HELD_OUT: ("Below is some prose with numbers in it. ", ""),
}


@dataclass(frozen=True, slots=True)
class Document:
    """A text with facts in it, and the facts in their order."""

    text: str
    facts: tuple[tuple[str, int], ...]


def document(source: random.Random, split: Split, *, facts: int, fillers: int) -> Document:
    """A text of `facts` facts about different people with `fillers` sentences of prose between them."""
    people = names(source, split, facts)
    numbers = source.sample(range(10, 100), facts)
    places = sorted(source.randint(0, fillers) for _ in range(facts))
    parts, told = [], 0
    for position in range(fillers + 1):
        while told < facts and places[told] == position:
            frame = source.choice(FACTS)
            parts.append(frame.format(name=people[told], number=numbers[told]))
            told += 1
        if position < fillers:
            parts.append(sentence(source, split))
    text = source.choice(_INTRODUCTION[split]) + " ".join(parts)
    return Document(text, tuple(zip(people, numbers, strict=True)))


def questions(source: random.Random, split: Split, text: Document, count: int) -> list[Exchange]:
    """`count` questions about the document, different while it has facts; the first one brings the text."""
    order = list(text.facts)
    source.shuffle(order)
    asked = [order[number % len(order)] for number in range(count)]
    exchanges = []
    for number, (person, value) in enumerate(asked):
        wording = source.choice(
            _QUESTIONS[split][: -1 if number == 0 and split is Split.TRAIN else None]
        ).format(person)
        exchanges.append(
            Exchange(
                "recall",
                f"{text.text}\n\n{wording}" if number == 0 else wording,
                f"I look for {person} in the text.",
                f"{person}={value}",
            )
        )
    return exchanges
