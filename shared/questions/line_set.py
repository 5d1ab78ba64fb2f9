"""Sets of line numbers, as answers about source code give them: 12, 20-22. Spec: apps §3.5."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LARGEST_LINE = 255  # and 0 stands for "no line: the function is safe"
_RANGE: Final = re.compile(r"([0-9]+)(?:[ \t]*[-–][ \t]*([0-9]+))?")


@dataclass(frozen=True, slots=True)
class LineSet:
    """Line numbers; those over LARGEST_LINE can be given, but are never right."""

    lines: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> LineSet | None:
        """The set that `text` spells with commas between numbers and ranges; None if it does not."""
        found: set[int] = set()
        for part in text.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                return None
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
            if not first <= last <= LARGEST_LINE:
                return None
            found.update(range(first, last + 1))
        return cls(frozenset(found))

    @classmethod
    def find(cls, text: str) -> LineSet:
        """All numbers and ranges in a line of text, whatever stands between them."""
        found: set[int] = set()
        for match in _RANGE.finditer(text):
            # A number of many digits is no line; cutting it keeps it wrong and cheap.
            ends = [int(digits[:6]) for digits in match.groups() if digits is not None]
            if len(ends) == 2 and ends[0] <= ends[1] <= LARGEST_LINE:
                found.update(range(ends[0], ends[1] + 1))
            else:
                found.update(ends)
        return cls(frozenset(found))

    def within(self, accepted: LineSet) -> bool:
        """Whether there is a line, and all of them are accepted."""
        return bool(self.lines) and self.lines <= accepted.lines

    def __str__(self) -> str:
        """Ascending, neighbours as ranges: 12,20-22."""
        parts: list[str] = []
        first = last = -2
        for line in [*sorted(self.lines), None]:
            if line == last + 1:
                last = line
                continue
            if first >= 0:
                parts.append(str(first) if first == last else f"{first}-{last}")
            first = last = -2 if line is None else line
        return ",".join(parts)
