"""The story of the long-context test, and the grading of what is recalled of it. Spec: apps §10.

Always the same story for the same number of scenes. Knows no tokens.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final

from shared.story.scenes import (
    BRIDGE,
    DETAILS,
    DISCOUNT,
    FACT,
    INTRODUCTION,
    NAMES,
    RUMOUR,
    TASK,
    TEMPLATES,
)

SEED: Final = 20260513
SCENES: Final = 190
# Scene 7 carries the first fact, and every eleventh after it the next; decoys stand at fixed places too.
FIRST_FACT, FACT_EVERY = 7, 11
_RUMOURS, _DISCOUNTS = (9, 3), (11, 6)

_ONES: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


@dataclass(frozen=True, slots=True)
class Story:
    """The whole user message, and the facts in it, in order."""

    text: str
    facts: tuple[tuple[str, int], ...]


def make_story(scenes: int = SCENES) -> Story:
    """A story of at least 8 scenes; 16 facts stand in the whole one, fewer in a shorter one."""
    source = random.Random(SEED)
    names = source.sample(NAMES, len(NAMES))
    numbers = source.sample(range(100, 1000), len(NAMES))
    facts: list[tuple[str, int]] = []
    parts = []
    for scene in range(scenes):
        lead, friend = source.sample(NAMES, 2)
        details = {key: source.choice(words) for key, words in DETAILS.items()}
        text = [TEMPLATES[scene % len(TEMPLATES)].format(lead=lead, friend=friend, **details)]
        # Drawn in every scene, so that the same scenes open a longer story.
        decoy, number, percent = source.choice(NAMES), source.randrange(100, 1000), source.randrange(5, 60)
        if scene >= FIRST_FACT and (scene - FIRST_FACT) % FACT_EVERY == 0 and len(facts) < len(names):
            fact = names[len(facts)], numbers[len(facts)]
            facts.append(fact)
            text.append(BRIDGE + FACT.format(name=fact[0], words=in_words(fact[1])))
        if scene % _RUMOURS[0] == _RUMOURS[1]:
            text.append(RUMOUR.format(name=decoy, words=in_words(number)))
        if scene % _DISCOUNTS[0] == _DISCOUNTS[1]:
            text.append(DISCOUNT.format(name=decoy, words=in_words(percent)))
        parts.append(" ".join(text))
    name, number = facts[0]
    return Story(INTRODUCTION + "\n\n".join(parts) + TASK.format(name=name, number=number), tuple(facts))


def in_words(number: int) -> str:
    """A number from 0 to 999 in English words."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
    hundreds, rest = divmod(number, 100)
    return f"{_ONES[hundreds]} hundred" + (f" and {in_words(rest)}" if rest else "")


def missing(story: Story, answer: str) -> list[tuple[str, int]]:
    """The facts that an answer does not hold: a name as a whole word, `=` and the right number somewhere."""
    return [(name, number) for name, number in story.facts if not _holds(answer, name, number)]


def _holds(answer: str, name: str, number: int) -> bool:
    found = re.finditer(rf"(?<!\w){name}[ \t*]*=[ \t*]*([0-9]{{1,9}})", answer)
    return any(int(match[1]) == number for match in found)
