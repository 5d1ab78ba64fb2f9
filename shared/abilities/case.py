"""A case of an ability: a conversation, and what the model must say in it, word for word.

Owns the file of them: JSON, one object a line, compressed with gzip. Knows no engine.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from shared.errors import UsageError
from shared.text.effort import Effort
from shared.text.messages import ToolSchema

_EFFORTS: Final = ("none", "low", "high", "max")


@dataclass(frozen=True, slots=True)
class ExpectedAnswer:
    """Content, white space around it aside, and no call."""

    text: str


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """Exactly one call of this tool with these arguments; `result` is what the tool then gives back."""

    tool: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class AbilityCase:
    """The system text and the user's message, the tools that are offered, and the model's turns that must
    follow, at least one."""

    ability: str
    id: str
    system: str
    user: str
    effort: Effort
    expected: tuple[ExpectedAnswer | ExpectedCall, ...]
    tools: tuple[ToolSchema, ...] = field(default=())

    def record(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "ability": self.ability,
            "id": self.id,
            "system": self.system,
            "user": self.user,
            "effort": self.effort,
            "expected": [
                {"text": step.text}
                if isinstance(step, ExpectedAnswer)
                else {"tool": step.tool, "arguments": step.arguments, "result": step.result}
                for step in self.expected
            ],
            "tools": list(self.tools),
        }


def read_cases(path: Path) -> list[AbilityCase]:
    """The cases of a file. Raises UsageError with the line."""
    try:
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the cases {path}: {error}") from None
    cases = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            cases.append(_case(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"the cases {path}, line {number}: {type(error).__name__}: {error}") from None
    return cases


def write_cases(path: Path, cases: Iterable[AbilityCase]) -> None:
    """Write the file, the same bytes for the same cases."""
    lines = [json.dumps(case.record(), ensure_ascii=False, separators=(",", ":")) + "\n" for case in cases]
    path.write_bytes(gzip.compress("".join(lines).encode("utf-8"), 9, mtime=0))


def first_of_each(cases: Sequence[AbilityCase], count: int | None) -> list[AbilityCase]:
    """The first `count` cases of every ability, all of them if None, evenly over the file: an ability's cases
    may grow harder from the first to the last."""
    if count is None:
        return list(cases)
    chosen = []
    for ability in dict.fromkeys(case.ability for case in cases):
        own = [case for case in cases if case.ability == ability]
        wanted = min(count, len(own))
        chosen += [own[number * len(own) // wanted] for number in range(wanted)]
    return chosen


def _case(fields: dict[str, Any]) -> AbilityCase:
    effort = fields["effort"]
    if effort not in _EFFORTS:
        raise ValueError(f"unknown effort {effort!r}")
    expected = tuple(_step(step) for step in fields["expected"])
    if not expected:
        raise ValueError("nothing is expected")
    return AbilityCase(
        ability=str(fields["ability"]),
        id=str(fields["id"]),
        system=str(fields["system"]),
        user=str(fields["user"]),
        effort=cast(Effort, effort),
        expected=expected,
        tools=tuple(fields["tools"]),
    )


def _step(fields: dict[str, Any]) -> ExpectedAnswer | ExpectedCall:
    if "text" in fields:
        return ExpectedAnswer(str(fields["text"]))
    return ExpectedCall(str(fields["tool"]), dict(fields["arguments"]), str(fields["result"]))
