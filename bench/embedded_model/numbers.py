"""Repeating words and adding small numbers."""

from __future__ import annotations

import random

from bench.embedded_model.exchange import Exchange
from bench.embedded_model.names import name
from bench.embedded_model.prose import word
from bench.embedded_model.split import Split

LARGEST = 12

_REPEAT = {
    Split.TRAIN: (
        "Repeat: {}",
        "Repeat after me: {}",
        "Say this again: {}",
        "Please repeat these words: {}",
        "Copy this: {}",
        "Write the same: {}",
        "Say exactly this: {}",
        "Can you repeat this for me? {}",
        "Write these words once more: {}",
        "I say {} and you say the same.",
        "{} - please say it too.",
        "Here are some words: {} Repeat them.",
        "Say it back: {}",
        "After me, please: {}",
        "Now it is your turn: {}",
        "Now say the same words: {}",
        "Now, one more time: {}",
        "Give me the words again: {}",
        "Return this: {}",
        "Hand these back: {}",
        "Speak after me: {}",
        "Print this: {}",
        "What did I say? {}",
        "My words are {} and yours are the same.",
        "Send the words back: {}",
    ),
    Split.HELD_OUT: ("Echo the following: {}", "Now repeat what I say: {}", "Give this back to me: {}"),
}
_ADD = {
    Split.TRAIN: (
        "What is {} plus {}?",
        "Add {} and {}.",
        "How much is {} plus {}?",
        "{} + {} = ?",
        "Please add {} and {}",
        "Compute {} + {}.",
        "Sum of {} and {}?",
        "{} plus {}",
        "{} plus {} is?",
        "{} and {} together?",
        "I have {} and get {} more, how many is that?",
        "How much do {} and {} make?",
        "If I add {} to {}, what do I get?",
        "Calculate {} plus {} for me.",
        "Count {} and {} together.",
        "What do you get for {} + {}?",
        "{} and then {} more makes how many?",
        "Please give me {} plus {}.",
    ),
    Split.HELD_OUT: ("Tell me the sum of {} and {}.", "{} plus {} makes what?", "Can you add {} to {}?"),
}


def repeat(source: random.Random, split: Split, *, longest: int = 12) -> Exchange:
    """Up to `longest` words, names and numbers, to be said again."""
    parts = [_part(source, split) for _ in range(source.randint(2, longest))]
    text = " ".join(parts)
    return Exchange("numbers", source.choice(_REPEAT[split]).format(text), "I repeat the words.", text)


def add(source: random.Random, split: Split) -> Exchange:
    """Two numbers from 0 to `LARGEST`."""
    left, right = source.randint(0, LARGEST), source.randint(0, LARGEST)
    question = source.choice(_ADD[split]).format(left, right)
    return Exchange("numbers", question, f"{left} plus {right} is {left + right}.", str(left + right))


def _part(source: random.Random, split: Split) -> str:
    chance = source.random()
    if chance < 0.4:
        return name(source, split)
    return word(source) if chance < 0.75 else str(source.randint(0, 99))
