"""The trace of a run: what is written is read, whatever an output holds; regrading."""

from dataclasses import replace

from shared.questions.question import Question
from shared.questions.regrade import regrade
from shared.questions.run import Outcome
from shared.questions.think_budget import ThinkClose
from shared.questions.trace import case_text, head_text, read_trace, summary_text

CHOICE = Question("own", "1", "Which?", "B", "choice", ("left", "two\nlines"))
NUMBER = Question("own", "2", "How many?", "42", "integer")
HOSTILE = (
    "Answer: A\n===== CASE 1/1 own/1 =====\nMODEL_OUTPUT_BEGIN bytes=3\nabc\nMODEL_OUTPUT_END\n"
    "\nMODEL_OUTPUT_END\n\n===== SUMMARY =====\nö"
)


def _outcome(status, picked, output):
    return Outcome(status, picked, 10, 20, 1.5, ThinkClose("natural", 3, 17), output, "eos")


def _trace(*cases):
    texts = [case_text(number, len(cases), *case) for number, case in enumerate(cases, start=1)]
    return (head_text({"model": "a\nb"}) + "".join(texts) + summary_text([], 0.0)).encode()


def test_the_lines_of_a_case():
    lines = case_text(1, 2, CHOICE, _outcome("PASSED", "B", "x</think>Answer: B")).splitlines()
    assert lines[0] == "===== CASE 1/2 own/1 ====="
    for line in (
        "status: PASSED",
        "picked: B",
        "expected: B",
        "prompt_tokens: 10",
        "generated_tokens: 20",
        "seconds: 1.500",
        "think_close: natural",
        "think_close_index: 3",
        "think_close_remaining: 17",
        "choice_B: two lines",
        "MODEL_OUTPUT_BEGIN bytes=18",
        "MODEL_OUTPUT_END",
    ):
        assert line in lines


def test_an_output_can_hold_the_trace_s_own_lines():
    trace = _trace(
        (CHOICE, _outcome("FAILED", "A", HOSTILE)), (NUMBER, _outcome("PASSED", "42", "Answer: 42"))
    )
    assert [(case.id, case.status, case.picked, case.output) for case in read_trace(trace)] == [
        ("1", "FAILED", "A", HOSTILE),
        ("2", "PASSED", "42", "Answer: 42"),
    ]


def test_regrading_tells_what_changed():
    trace = _trace(
        (CHOICE, _outcome("FAILED", "?", "Answer: B")),
        (NUMBER, _outcome("PASSED", "42", "Answer: 42")),
        (replace(NUMBER, id="gone"), _outcome("PASSED", "42", "Answer: 42")),
        (replace(NUMBER, id="3"), replace(_outcome("SKIPPED", "?", ""), close=ThinkClose())),
    )
    result = regrade(trace, [CHOICE, replace(NUMBER, answer="43"), replace(NUMBER, id="3")])
    assert result.lines == [
        "own/1: FAILED ? -> PASSED B",
        "own/2: PASSED 42 -> FAILED 42",
        "case 3: no question own/gone",
    ]
    assert result.totals() == "passed=1 failed=1 changed=2 unknown=1 parse_errors=0"


def test_a_damaged_case_is_counted_and_the_next_is_read():
    whole = _trace(
        (CHOICE, _outcome("PASSED", "B", "Answer: B")), (NUMBER, _outcome("PASSED", "42", "Answer: 42"))
    )
    for damaged, problem in (
        (whole.replace(b"MODEL_OUTPUT_BEGIN bytes=9\n", b"MODEL_OUTPUT_BEGIN bytes=8\n"), "another length"),
        (whole.replace(b"picked: B\n", b""), "it lacks source"),
        (whole.replace(b"picked: B\n", b"picked\n"), "no key and no block"),
    ):
        result = regrade(damaged, [CHOICE, NUMBER])
        assert (result.parse_errors, result.passed) == (1, 1)
        assert problem in result.lines[0]
    cut = whole[: whole.index(b"Answer: 42")]
    assert regrade(cut, [CHOICE, NUMBER]).totals() == "passed=1 failed=0 changed=0 unknown=0 parse_errors=1"
    assert regrade(b"", [CHOICE]).totals() == "passed=0 failed=0 changed=0 unknown=0 parse_errors=0"
