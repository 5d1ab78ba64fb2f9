"""Extractors and verdicts."""

import pytest

from shared.questions import extractor_cases
from shared.questions.extractor_cases import CASES, failures
from shared.questions.grading import Grade, extract, grade
from shared.questions.question import Question


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_answer_is_found(case):
    assert extract(case.kind, case.choices, case.output) == case.answer


def test_the_self_test_tells_what_is_not_found(monkeypatch):
    assert failures() == []
    monkeypatch.setattr(extractor_cases, "CASES", (CASES[0]._replace(answer="D"),))
    assert failures() == ["choice: 'Answer: B' gave B, not D"]


def _question(kind, answer, choices=()):
    return Question("own", "1", "?", answer, kind, choices)


def test_verdicts():
    choice = _question("choice", "B", ("x", "y"))
    assert grade(choice, "Answer: b") == Grade("B", True)
    assert grade(choice, "Answer: A") == Grade("A", False)
    assert grade(choice, "no idea") == Grade("?", False)
    assert grade(_question("integer", "42"), "Answer: 0042") == Grade("42", True)
    lines = _question("lines", "12,20-22")
    assert grade(lines, "Answer: 21, 22") == Grade("21-22", True)
    assert grade(lines, "Answer: 21, 23") == Grade("21,23", False)
    assert grade(lines, "Answer: line 12") == Grade("12", True)
    assert grade(lines, "nothing") == Grade("?", False)
    assert grade(_question("lines", "0"), "The function is safe. Answer: 0") == Grade("0", True)


@pytest.mark.parametrize("kind", ["choice", "integer", "lines"])
def test_long_outputs_take_no_long_time(kind):
    assert extract(kind, 4, "answer" * 100_000 + "9" * 500_000 + " A")
