"""The table at the end of a run. Spec: apps §3.6."""

from __future__ import annotations

from collections.abc import Sequence

from shared.questions.question import Question
from shared.questions.run import Outcome

_COLUMNS = ("#", "state", "prompt", "gen", "total", "given", "correct", "test")


def report_lines(questions: Sequence[Question], outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """A summary, and a line for each question; `seconds` is the whole run."""
    passed = sum(outcome.status == "PASSED" for outcome in outcomes)
    failed = sum(outcome.status == "FAILED" for outcome in outcomes)
    rows = [_COLUMNS]
    for number, (question, outcome) in enumerate(zip(questions, outcomes, strict=True), start=1):
        total = outcome.prompt_tokens + outcome.generated
        rows.append(
            (
                str(number),
                outcome.status,
                str(outcome.prompt_tokens),
                str(outcome.generated),
                str(total),
                outcome.picked,
                question.answer,
                question.name,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    head = f"passed {passed}/{len(outcomes)}, failed {failed}, runtime {seconds:.1f} s"
    return [
        head,
        *(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ),
    ]
