"""Judging the outputs of an earlier run again, without a model. Spec: apps §3.6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.questions.grading import grade
from shared.questions.question import Question
from shared.questions.trace import read_trace


@dataclass
class Regrading:
    """Totals over the judged cases, and a line for each that changed or could not be judged. `unknown` cases
    are of no question in the file; SKIPPED and STOPPED ones are not judged."""

    passed: int = 0
    failed: int = 0
    changed: int = 0
    unknown: int = 0
    parse_errors: int = 0
    lines: list[str] = field(default_factory=list)

    def totals(self) -> str:
        return (
            f"passed={self.passed} failed={self.failed} changed={self.changed} unknown={self.unknown} "
            f"parse_errors={self.parse_errors}"
        )


def regrade(content: bytes, questions: Sequence[Question]) -> Regrading:
    """Judge every case of a trace by the `questions` of today."""
    known = {(question.source, question.id): question for question in questions}
    result = Regrading()
    for number, case in enumerate(read_trace(content), start=1):
        if case.problem:
            result.parse_errors += 1
            result.lines.append(f"case {number}: {case.problem}")
            continue
        question = known.get((case.source, case.id))
        if question is None:
            result.unknown += 1
            result.lines.append(f"case {number}: no question {case.source}/{case.id}")
            continue
        if case.status not in ("PASSED", "FAILED"):
            continue
        picked, passed = grade(question, case.output)
        status = "PASSED" if passed else "FAILED"
        result.passed += passed
        result.failed += not passed
        if (status, picked) != (case.status, case.picked):
            result.changed += 1
            result.lines.append(f"{question.name}: {case.status} {case.picked} -> {status} {picked}")
    return result
