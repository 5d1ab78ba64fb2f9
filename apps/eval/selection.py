"""Which questions of a file run, in which order, and what cannot be asked together. Spec: apps §3.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from shared.errors import UsageError

_Item = TypeVar("_Item")


def select(items: Sequence[_Item], first: int | None, sequence: str | None) -> list[_Item]:
    """The `first` so many items, or those of a `sequence` such as 3,1,1: numbers from 1 on, which may be
    repeated. Raises UsageError."""
    if sequence is None:
        return list(items[:first])
    if first is not None:
        raise UsageError("--questions and --case-sequence both choose questions: give one of them")
    numbers = _numbers("--case-sequence", sequence)
    for number in numbers:
        if not 1 <= number <= len(items):
            raise UsageError(f"--case-sequence: there is no question {number}, they are 1 to {len(items)}")
    return [items[number - 1] for number in numbers]


def parse_counts(text: str, count: int) -> list[int]:
    """`count` numbers with commas between them. Raises UsageError."""
    numbers = _numbers("--expect-tokens", text)
    if len(numbers) != count:
        raise UsageError(f"--expect-tokens names {len(numbers)} numbers for {count} questions")
    return numbers


def refuse_others(what: str, options: Mapping[str, object]) -> None:
    """Raises UsageError for the first of `options` that was given although `what` has no use for it."""
    for name, value in options.items():
        if value:
            raise UsageError(f"{name} does not go with {what}")


def _numbers(option: str, text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= 9):
            raise UsageError(f"{option}: {word!a} is no number")
    return [int(word) for word in words]
