"""The lines of a vector file: words between blanks, comments left out, faults told with their line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from shared.errors import UsageError
from shared.evaluation.input_file import read_lines

MOST_CONTEXT = 1_048_576


class VectorLines:
    """Reads one line after the other. Everything that is wrong becomes a UsageError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0  # of the line read last
        self._lines = [
            (number, words)
            for number, line in enumerate(read_lines(path, "the vector file"), start=1)
            if (words := line.split()) and not words[0].startswith("#")
        ]
        self._next = 0

    @property
    def ended(self) -> bool:
        return self._next == len(self._lines)

    def peek(self) -> Sequence[str]:
        """The words of the next line; none at the end."""
        return () if self.ended else self._lines[self._next][1]

    def take(self, keyword: str, count: int, where: str) -> list[str]:
        """The `count` words behind `keyword`, with which the next line must begin. `where` says what was
        being read."""
        if self.ended:
            raise UsageError(f"the vector file {self._path} ends inside {where}: it is cut off")
        self._number, words = self._lines[self._next]
        self._next += 1
        if words[0] != keyword or len(words) != count + 1:
            found = " ".join(words)[:60]
            raise self.fault(f"expected `{keyword}` and {count} words in {where}, found {found!a}")
        return words[1:]

    def fault(self, why: str) -> UsageError:
        """The error for the line that was read last."""
        return UsageError(f"the vector file {self._path}, line {self._number}: {why}")

    def whole(self, word: str, least: int, most: int, what: str) -> int:
        """A number written in decimal digits, `least` to `most`."""
        if not (word.isascii() and word.isdigit() and len(word) <= 12 and least <= int(word) <= most):
            raise self.fault(f"{what} must be a number from {least} to {most}, not {ascii(word)[:40]}")
        return int(word)

    def real(self, word: str, what: str) -> float:
        """A finite number."""
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.fault(f"{what} must be a finite number, not {ascii(word)[:40]}")
        return value

    def name(self, word: str) -> str:
        """An id, to be shown."""
        if not word.isprintable():
            raise self.fault(f"the id {ascii(word)[:40]} holds characters that cannot be shown")
        return word
