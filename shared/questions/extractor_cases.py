"""Outputs and what must be found in them: the self-test of the extractors. Spec: apps §3.3."""

from __future__ import annotations

from typing import Final, NamedTuple

from shared.questions.grading import extract
from shared.questions.question import Kind


class ExtractorCase(NamedTuple):
    """An output of a question of `kind` with `choices`, and the answer in it."""

    kind: Kind
    choices: int
    output: str
    answer: str


_FAR = "x" * 200

CASES: Final = (
    ExtractorCase("choice", 4, "Answer: B", "B"),
    ExtractorCase("choice", 4, "**Answer:** **C**", "C"),
    ExtractorCase("choice", 4, "Answer : (d)", "D"),
    ExtractorCase("choice", 4, "ANSWER: \\boxed{A}.", "A"),
    ExtractorCase("choice", 4, "Answer: A\nNo, wait.\nAnswer: C", "C"),
    ExtractorCase("choice", 4, "Answer: A</think>Answer: B", "B"),
    ExtractorCase("choice", 4, "B</think>It is C, not D. Answer: C </think> Answer: A", "A"),
    ExtractorCase("choice", 4, "The answer is a matter of taste, but D it is", "D"),
    ExtractorCase("choice", 4, "I think that A fits, and not B", "B"),
    ExtractorCase("choice", 4, "Answer: E", "?"),
    ExtractorCase("choice", 10, "I'm sure. Answer: it is J", "J"),
    ExtractorCase("choice", 4, "D'Alembert said C", "C"),
    ExtractorCase("choice", 4, f"B. Answer: {_FAR} A", "A"),
    ExtractorCase("choice", 4, f"A or B. Answer: {_FAR}", "B"),
    ExtractorCase("choice", 4, "The answers: B", "B"),
    ExtractorCase("choice", 4, "nothing here", "?"),
    ExtractorCase("choice", 4, "", "?"),
    ExtractorCase("integer", 0, "Answer: 042", "42"),
    ExtractorCase("integer", 0, "Answer: 000", "0"),
    ExtractorCase("integer", 0, "7 and 8. Answer: the sum is 15 of 20", "15"),
    ExtractorCase("integer", 0, "First 7, then 8", "8"),
    ExtractorCase("integer", 0, f"5. Answer: {_FAR} 6", "6"),
    ExtractorCase("integer", 0, "thinking 5</think>none", "?"),
    ExtractorCase("integer", 0, "my answer 12 is final, 13 is not", "12"),
    ExtractorCase("lines", 0, "Answer: 12", "12"),
    ExtractorCase("lines", 0, "Answer: lines 20-22 and 7", "7,20-22"),
    ExtractorCase("lines", 0, "Answer: 3, 4, 5\n9", "3-5"),
    ExtractorCase("lines", 0, "Answer: 0", "0"),
    ExtractorCase("lines", 0, "Answer: none\nLine 31", "31"),
    ExtractorCase("lines", 0, "It is in line 9", "9"),
)


def failures() -> list[str]:
    """One line for each case whose answer is not found."""
    told = []
    for case in CASES:
        found = extract(case.kind, case.choices, case.output)
        if found != case.answer:
            told.append(f"{case.kind}: {case.output!r} gave {found}, not {case.answer}")
    return told
