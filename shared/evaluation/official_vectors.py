"""`official.vec`: what a server with the true weights answered: tokens as bytes and log probabilities.

Owns the format (spec: apps §10). Knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shared.evaluation.vector_lines import MOST_CONTEXT, VectorLines

MOST_STEPS, MOST_CANDIDATES, MOST_BYTES = 16, 32, 128


class Candidate(NamedTuple):
    """A token by its bytes, and its natural log-probability."""

    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class OfficialStep:
    """The token that was taken, and the likeliest ones at its place."""

    selected: bytes
    top: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class OfficialCase:
    """A greedy answer without system text and thinking. `prompt_file` is as the file names it."""

    id: str
    context: int
    prompt_file: str
    steps: tuple[OfficialStep, ...]


def read_official(path: Path) -> list[OfficialCase]:
    """The cases of a file, at least one. Raises UsageError with the line."""
    lines = VectorLines(path)
    cases: list[OfficialCase] = []
    while not lines.ended or not cases:
        case = _read_case(lines)
        if any(case.id == other.id for other in cases):
            raise lines.fault(f"the id {case.id!r} occurs twice")
        cases.append(case)
    return cases


def official_text(cases: Sequence[OfficialCase], comment: str) -> str:
    """The file that `read_official` reads."""
    lines = [f"# {comment}"]
    for case in cases:
        lines.append(f"case {case.id} {case.context} {len(case.steps)} {case.prompt_file}")
        for number, step in enumerate(case.steps):
            lines.append(f"step {number} {step.selected.hex()} {len(step.top)}")
            lines += [f"top {candidate.data.hex()} {candidate.logprob:.9g}" for candidate in step.top]
        lines.append("end")
    return "\n".join([*lines, ""])


def _read_case(lines: VectorLines) -> OfficialCase:
    name, context, steps, prompt = lines.take("case", 4, "a case")
    where = f"case {ascii(name)[:60]}"
    lines.name(name)
    room = lines.whole(context, 1, MOST_CONTEXT, "the context")
    count = lines.whole(steps, 1, MOST_STEPS, "the number of steps")
    read = tuple(_read_step(lines, number, where) for number in range(count))
    lines.take("end", 0, where)
    return OfficialCase(name, room, prompt, read)


def _read_step(lines: VectorLines, number: int, where: str) -> OfficialStep:
    where = f"step {number} of {where}"
    index, selected, count = lines.take("step", 3, where)
    lines.whole(index, number, number, "the number of the step")
    data = _bytes(lines, selected)
    candidates = lines.whole(count, 0, MOST_CANDIDATES, "the number of candidates")
    return OfficialStep(data, tuple(_read_candidate(lines, where) for _ in range(candidates)))


def _read_candidate(lines: VectorLines, where: str) -> Candidate:
    data, logprob = lines.take("top", 2, where)
    return Candidate(_bytes(lines, data), lines.real(logprob, "the log probability"))


def _bytes(lines: VectorLines, digits: str) -> bytes:
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        data = b""
    if not 1 <= len(data) <= MOST_BYTES:
        raise lines.fault(f"a token must be 1 to {MOST_BYTES} bytes in hexadecimal, not {ascii(digits)[:40]}")
    return data
