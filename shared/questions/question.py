"""A question with its answer, and the file of them: JSON, one object a line. Spec: apps §3.1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from shared.errors import UsageError
from shared.evaluation.input_file import read_lines
from shared.questions.line_set import LARGEST_LINE, LineSet

Kind = Literal["choice", "integer", "lines"]
KINDS: Final = get_args(Kind)
LETTERS: Final = "ABCDEFGHIJ"
LONGEST_ANSWER = 31
_WHAT = "the questions"


@dataclass(frozen=True, slots=True)
class Question:
    """`answer` is in its normal form: a letter, digits without leading zeros, or a line set such as 12,20-22.
    `source` and `id` together name the question."""

    source: str
    id: str
    question: str
    answer: str
    kind: Kind
    choices: tuple[str, ...] = ()
    domain: str = ""
    title: str = ""

    @property
    def name(self) -> str:
        return f"{self.source}/{self.id}"


def read_questions(path: Path) -> list[Question]:
    """The questions of a file, in its order. Raises UsageError with the line and the reason."""
    questions: list[Question] = []
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(read_lines(path, _WHAT), start=1):
        if not line.strip():
            continue
        try:
            question = _question(line)
            if (question.source, question.id) in seen:
                raise ValueError(f"{question.name!r} occurs twice")
        except ValueError as error:
            raise UsageError(f"{_WHAT} {path}, line {number}: {error}") from None
        seen.add((question.source, question.id))
        questions.append(question)
    if not questions:
        raise UsageError(f"{_WHAT} {path}: the file holds none")
    return questions


def normal_integer(digits: str) -> str:
    """Digits without leading zeros."""
    return digits.lstrip("0") or "0"


def _question(line: str) -> Question:
    """Raises ValueError with the reason."""
    fields = _object(line)
    choices = _choices(fields.get("choices"))
    kind = fields.get("kind", "choice" if choices else "integer")
    if kind not in KINDS:
        raise ValueError(f"`kind` must be {', '.join(KINDS)}")
    if bool(choices) != (kind == "choice"):
        raise ValueError(f"a question of kind `{kind}` {'has' if choices else 'needs'} `choices`")
    return Question(
        source=_label(fields, "source"),
        id=_label(fields, "id"),
        question=_text(fields, "question"),
        answer=_answer(fields, kind, len(choices)),
        kind=cast(Kind, kind),
        choices=choices,
        domain=_label(fields, "domain", required=False),
        title=_label(fields, "title", required=False),
    )


def _object(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    return fields


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{key}` must be a text")
    if not _encodable(value):
        raise ValueError(f"`{key}` holds half of a character")
    return value


def _label(fields: dict[str, Any], key: str, *, required: bool = True) -> str:
    """A text of one line, to be shown."""
    if not required and fields.get(key) is None:
        return ""
    value = fields.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.isprintable() or (required and not value.strip()):
        raise ValueError(f"`{key}` must be a text of one line")
    return value


def _choices(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not 2 <= len(value) <= len(LETTERS):
        raise ValueError(f"`choices` must be a list of 2 to {len(LETTERS)} texts")
    if not all(isinstance(choice, str) and choice.strip() and _encodable(choice) for choice in value):
        raise ValueError("`choices` must hold texts only")
    return tuple(value)


def _answer(fields: dict[str, Any], kind: str, choices: int) -> str:
    value = fields.get("answer")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 1 <= len(value.strip()) <= LONGEST_ANSWER:
        raise ValueError(f"`answer` must be a text of 1 to {LONGEST_ANSWER} characters")
    answer = value.strip()
    if kind == "choice":
        if len(answer) != 1 or answer.upper() not in LETTERS[:choices]:
            raise ValueError(f"`answer` must be a letter from A to {LETTERS[choices - 1]}")
        return answer.upper()
    if kind == "integer":
        if not (answer.isascii() and answer.isdigit()):
            raise ValueError("`answer` must be digits")
        return normal_integer(answer)
    lines = LineSet.parse(answer)
    if lines is None:
        raise ValueError(f"`answer` must be lines from 0 to {LARGEST_LINE}, such as 12 or 20-22")
    return str(lines)


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
