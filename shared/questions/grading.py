"""Finding the answer in what a model wrote, and whether it is right. Spec: apps §3.5. Knows only text."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shared.questions.line_set import LineSet
from shared.questions.question import LETTERS, LONGEST_ANSWER, Kind, Question, normal_integer
from shared.text.marks import THINK_END

NOTHING: Final = "?"
_LETTER_REACH, _NUMBER_REACH = 96, 160  # characters behind the anchor

_MARKED = re.compile(r"(?<!\w)answer(?!\w)[ \t]*:", re.IGNORECASE)
_NAMED = re.compile(r"(?<!\w)answer(?!\w)", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]+")


class Grade(NamedTuple):
    """What was picked, `?` if nothing, and whether it is right."""

    picked: str
    passed: bool


def grade(question: Question, output: str) -> Grade:
    """Judge everything that a model wrote, its thinking included."""
    picked = extract(question.kind, len(question.choices), output)
    if question.kind == "lines":
        accepted = LineSet.parse(question.answer)
        assert accepted is not None, "a question's answer is in its normal form"
        return Grade(picked, LineSet.find(picked).within(accepted))
    return Grade(picked, picked == question.answer)


def extract(kind: Kind, choices: int, output: str) -> str:
    """The answer in normal form, `?` if there is none. It is looked for behind the first end of thinking, or
    in all of the text."""
    _, closed, answer = output.partition(THINK_END)
    text = answer if closed else output
    anchor = _anchor(text)
    if kind == "choice":
        return _letter(text, anchor, LETTERS[:choices])
    if kind == "lines" and anchor is not None:
        lines = LineSet.find(text[anchor : anchor + _NUMBER_REACH].partition("\n")[0])
        if lines.lines:
            return str(lines)
    return _integer(text, anchor)


def _anchor(text: str) -> int | None:
    """The place behind the last `answer:`, or behind the first `answer`."""
    marked = list(_MARKED.finditer(text))
    found = marked[-1] if marked else _NAMED.search(text)
    return None if found is None else found.end()


def _letter(text: str, anchor: int | None, letters: str) -> str:
    # An apostrophe belongs to a word: the I of I'm is no choice.
    alone = re.compile(rf"(?<![\w'’])[{letters}](?![\w'’])")
    if anchor is not None:
        end = min(len(text), anchor + _LETTER_REACH)
        near = alone.search(text, anchor, end)
        if near is None and text[anchor - 1] == ":":
            # Behind the mark a small letter is meant as a choice too; elsewhere it is an article.
            near = re.compile(alone.pattern, re.IGNORECASE).search(text, anchor, end)
        if near is not None:
            return near[0].upper()
    everywhere = alone.findall(text)
    return everywhere[-1] if everywhere else NOTHING


def _integer(text: str, anchor: int | None) -> str:
    if anchor is not None and (near := _DIGITS.search(text, anchor, anchor + _NUMBER_REACH)):
        return _cut(near[0])
    everywhere = _DIGITS.findall(text)
    return _cut(everywhere[-1]) if everywhere else NOTHING


def _cut(digits: str) -> str:
    """In normal form; what is longer than any answer stays wrong when it is cut."""
    return normal_integer(digits)[: LONGEST_ANSWER + 1]
