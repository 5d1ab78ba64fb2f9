"""Invented names, made of syllables.

A third of a million of them exist, so that a model cannot learn names by heart and must copy them. Every
syllable is one token of the vocabulary, with and without a capital and with a space before it, so that names
which were never seen are spelt like those which were.
"""

from __future__ import annotations

import random

from bench.embedded_model.split import Split, split_of

CONSONANTS = "bdfgklmnprstvz"
VOWELS = "aeiou"
SYLLABLES = tuple(consonant + vowel for consonant in CONSONANTS for vowel in VOWELS)

_TWO_SYLLABLES = 0.3


def name(source: random.Random, split: Split) -> str:
    """A name of two or three syllables with a capital, on this side of the split."""
    while True:
        count = 2 if source.random() < _TWO_SYLLABLES else 3
        drawn = "".join(source.choice(SYLLABLES) for _ in range(count)).capitalize()
        if split_of(drawn) is split:
            return drawn


def names(source: random.Random, split: Split, count: int) -> list[str]:
    """`count` different names, none the beginning of another."""
    drawn: list[str] = []
    while len(drawn) < count:
        candidate = name(source, split)
        if not any(candidate.startswith(other) or other.startswith(candidate) for other in drawn):
            drawn.append(candidate)
    return drawn
