"""Other ways to say what is asked: more wordings than anyone writes down.

The texts live in `rewordings.txt`: `way`, to ask for something to be done; `wrap`, a longer line around a
question; `like`, words that may stand for each other in a question about the program; `little`, words that
whoever types in a hurry leaves out.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from bench.embedded_model.names import CONSONANTS, VOWELS

REWORDINGS = Path(__file__).with_name("rewordings.txt")

# What begins so may be asked in the other ways.
_HOW = re.compile(r"How (?:do|can) I (.+)\?")
# Words, but for those of paths, flags and slash commands, and behind an article, which would have to follow.
_WORD = re.compile(r"(?<![/\w.-])(?<!\b[Aa] )(?<!\b[Aa]n )[A-Za-z]++(?![/\w-]|\.\w)")
_NAME = re.compile(f"(?:[{CONSONANTS}][{VOWELS}])+")
_LEAST_LEFT = 2  # words of a clipped line
_LEAST_MISTYPED = 5  # letters of a word


def reworded(source: random.Random, wording: str) -> str:
    """`wording` in another way, with other words, fewer of them, a slip of the finger, in small letters or
    without its mark; or as it stands."""
    text = wording
    asked = _HOW.fullmatch(text)
    if asked and source.random() < 0.5:
        text = _filled(source.choice(_lines("way")), asked[1])
    if source.random() < 0.45:
        text = _with_other_words(source, text)
    if source.random() < 0.25:
        text = _clipped(source, text)
    if source.random() < 0.15:
        text = _mistyped(source, text)
    chance = source.random()
    if chance < 0.15:
        text = text.lower()
    elif chance < 0.3:
        text = text.rstrip("?.!")
    return text


def wrapped(source: random.Random, text: str) -> str:
    """`text` in a longer line."""
    return source.choice(_lines("wrap")).format(text)


def _filled(way: str, action: str) -> str:
    text = way.format(action)
    return text[0].upper() + text[1:] if way.startswith("{}") else text


def _with_other_words(source: random.Random, text: str) -> str:
    """`text` with about half of the words that have others replaced."""

    def other(found: re.Match[str]) -> str:
        word = found[0]
        choices = _alternatives().get(word.lower())
        if choices is None or source.random() < 0.5:
            return word
        chosen = source.choice(choices)
        return chosen.capitalize() if word[0].isupper() else chosen

    return _WORD.sub(other, text)


def _clipped(source: random.Random, text: str) -> str:
    """`text` without some of its little words."""
    words = text.split()
    left = [word for word in words if word.lower() not in _little() or source.random() < 0.4]
    if len(left) < _LEAST_LEFT or all(word.lower().strip("?.!,") in _little() for word in left):
        return text  # nothing would be left to answer
    clipped = " ".join(left)
    return clipped[0].upper() + clipped[1:] if text[0].isupper() else clipped


def _mistyped(source: random.Random, text: str) -> str:
    """`text` with two letters of a long word changed over, or one of them missing or doubled."""
    words = [found for found in _WORD.finditer(text) if len(found[0]) >= _LEAST_MISTYPED]
    if not words:
        return text
    word = source.choice(words)
    at = source.randrange(word.start() + 1, word.end() - 1)
    slip = source.choice((text[at + 1] + text[at], text[at], text[at] + text[at] + text[at + 1]))
    slipped = text[word.start() : at] + slip + text[at + 2 : word.end()]
    if _NAME.fullmatch(slipped.lower()):
        return text  # names are what facts are about, and some are kept back
    return text[: word.start()] + slipped + text[word.end() :]


@cache
def _alternatives() -> dict[str, tuple[str, ...]]:
    groups = [tuple(part.strip() for part in line.split("|")) for line in _lines("like")]
    return {word: tuple(other for other in group if other != word) for group in groups for word in group}


@cache
def _little() -> frozenset[str]:
    return frozenset(" ".join(_lines("little")).split())


@cache
def _lines(kind: str) -> tuple[str, ...]:
    parts = (line.partition(" ") for line in REWORDINGS.read_text(encoding="utf-8").splitlines())
    return tuple(text for found, _, text in parts if found == kind)
