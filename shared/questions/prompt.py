"""What a model is asked: the texts around a question. Spec: apps §3.2. Knows no tokens."""

from __future__ import annotations

from typing import Final

from shared.questions.question import LETTERS, Kind, Question

SYSTEM: Final = (
    "You are given one item of a hard benchmark. Reason with care, and give the final answer in exactly the "
    "form that is asked for."
)

_FORMS: Final[dict[Kind, str]] = {
    "choice": "Answer: <letter>",
    "integer": "Answer: <integer>",
    "lines": "Answer: <line number or comma-separated line numbers>",
}


def user_text(question: Question) -> str:
    """The user message: the question, its choices, and the form of the last line."""
    parts = [question.question]
    if question.choices:
        listed = (f"{letter}. {text}" for letter, text in zip(LETTERS, question.choices, strict=False))
        parts.append("\n".join(["Choices:", *listed]))
    parts.append(
        "Solve this. End with exactly one last line in this form, and write nothing after it:\n"
        + _FORMS[question.kind]
    )
    return "\n\n".join(parts)
