"""`ds4 eval` from its command line, in plain form."""

import json

import pytest

from apps import cli
from apps.eval.context import automatic_context
from shared.errors import UsageError
from shared.questions.question import Question
from shared.questions.run import question_tokens
from shared.scripted.vocabulary import tokenizer
from tests.support.golden import tiny_q2
from tests.support.scripts import script_file, turn

LINES = [
    {"source": "own", "id": "sum", "question": "What is 2 + 3?", "answer": "5", "title": "A sum"},
    {"source": "own", "id": "pick", "question": "Which colour?", "answer": "B", "choices": ["tea", "red"]},
    {"source": "own", "id": "bug", "question": "Which line?", "answer": "3-4", "kind": "lines"},
]
TURNS = [
    turn("hm", "</think>", "Answer: 5", match="What is 2"),
    turn("hm", "</think>", "Answer: A", match="Which colour"),
    turn("hm", "</think>", "Answer: 4", match="Which line"),
]
SMALL = ["--tokens", "60", "--soft-limit-reply-budget", "20", "--hard-limit-reply-budget", "10"]


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def _eval(capsys, *options):
    code = cli.main(["eval", *map(str, options)])
    return code, capsys.readouterr()


def _spoken(folder, *turns):
    return ["--backend", "scripted", "--script", script_file(folder, *(turns or TURNS)), *SMALL, "--seed", 1]


def test_answers_are_shown_graded_and_reported(tmp_path, capsys, questions):
    code, printed = _eval(capsys, questions, *_spoken(tmp_path))
    lines = printed.out.splitlines()
    assert code == 1
    assert lines[:4] == ["--- 1/3 own/sum A sum", "hm", "Answer: 5", lines[3]]
    assert lines[3].startswith("PASSED got 5, expected 5, ")
    assert lines[3].endswith(" s, 12 tokens")
    assert lines[7].startswith("FAILED got A, expected B, ")
    assert lines[12].startswith("passed 2/3, failed 1, runtime ")
    assert lines[13].split() == ["#", "state", "prompt", "gen", "total", "given", "correct", "test"]
    table = [line.split() for line in lines[14:]]
    assert [(row[1], row[3], *row[5:]) for row in table] == [
        ("PASSED", "12", "5", "5", "own/sum"),
        ("FAILED", "12", "A", "B", "own/pick"),
        ("PASSED", "12", "4", "3-4", "own/bug"),
    ]
    assert all(int(row[2]) + int(row[3]) == int(row[4]) for row in table)
    assert "3 questions, seed 1" in printed.err


def test_a_run_in_which_nothing_fails_exits_with_0(tmp_path, capsys, questions):
    assert _eval(capsys, questions, "--questions", 1, *_spoken(tmp_path))[0] == 0
    code, printed = _eval(capsys, questions, "--case-sequence", "3,1,3", *_spoken(tmp_path))
    assert code == 0
    assert [line for line in printed.out.splitlines() if line.startswith("---")] == [
        "--- 1/3 own/bug",
        "--- 2/3 own/sum A sum",
        "--- 3/3 own/bug",
    ]


def test_a_change_in_the_number_of_tokens_is_drift(tmp_path, capsys, questions):
    options = [questions, "--case-sequence", "1,3", *_spoken(tmp_path)]
    assert _eval(capsys, *options, "--expect-tokens", "12,12")[0] == 0
    code, printed = _eval(capsys, *options, "--expect-tokens", "12,13")
    assert code == 1
    assert "generated tokens [12, 12], expected [12, 13]" in printed.err


def test_the_tiny_model_never_drifts_between_two_runs(tmp_path, capsys, questions):
    options = [questions, "--questions", 1, "--backend", "reference", "-m", tiny_q2(), "--seed", 1]
    budget = ["--tokens", "12", "--soft-limit-reply-budget", "8", "--hard-limit-reply-budget", "4"]
    traces = []
    for name in ("a", "b"):
        code, _ = _eval(capsys, *options, *budget, "--trace", tmp_path / name)
        assert code == 1
        lines = (tmp_path / name).read_text(errors="replace").splitlines()
        traces.append([line for line in lines if not line.startswith(("time: ", "seconds: "))])
    assert traces[0] == traces[1]
    assert "think_close: hard_forced" in traces[0]
    assert "generated_tokens: 12" in traces[0]


def test_a_trace_is_graded_again_without_a_model(tmp_path, capsys, questions):
    trace = tmp_path / "trace.txt"
    assert _eval(capsys, questions, *_spoken(tmp_path), "--trace", trace)[0] == 1
    assert trace.stat().st_mode & 0o077 == 0
    code, printed = _eval(capsys, questions, "--regrade-trace", trace)
    assert (code, printed.out) == (1, "passed=2 failed=1 changed=0 unknown=0 parse_errors=0\n")
    questions.write_text(questions.read_text().replace('"answer": "B"', '"answer": "A"'))
    code, printed = _eval(capsys, questions, "--regrade-trace", trace)
    assert (code, printed.out.splitlines()) == (
        0,
        [
            "own/pick: FAILED A -> PASSED A",
            "passed=3 failed=0 changed=1 unknown=0 parse_errors=0",
        ],
    )


def test_the_extractors_test_themselves(capsys):
    code, printed = _eval(capsys, "--self-test-extractors")
    assert code == 0
    assert printed.out.startswith("extractors: 30 of 30 outputs")


def test_a_context_that_is_too_small_skips(tmp_path, capsys, questions):
    code, printed = _eval(capsys, questions, "--questions", 1, "--ctx", 100, *_spoken(tmp_path))
    assert code == 0
    assert "SKIPPED got ?" in printed.out


def test_the_context_follows_from_the_longest_question():
    short, long = (Question("own", name, name * 500, "1", "integer") for name in ("a", "bb"))
    size = len(question_tokens(tokenizer(), long, "none", "official"))
    # A session keeps one place free behind its prompt.
    assert automatic_context(tokenizer(), [short, long], "none", 100) == size + 100 + 1
    assert automatic_context(tokenizer(), [short], "max", 100) == 393_216
    with pytest.raises(UsageError, match="more than 1000000"):
        automatic_context(tokenizer(), [short], "none", 999_999)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--tokens", "500"], "--hard-limit-reply-budget 512 must be below --tokens 500"),
        (["--soft-limit-reply-budget", "100"], "--soft-limit-reply-budget 100 must not be below"),
        (["--case-sequence", "0"], "--case-sequence: there is no question 0, they are 1 to 3"),
        (["--case-sequence", "1,x"], "--case-sequence: 'x' is no number"),
        (["--case-sequence", "1", "--questions", "1"], "both choose questions"),
        (["--expect-tokens", "1,2"], "--expect-tokens names 2 numbers for 3 questions"),
        (["--regrade-trace", "/no/such"], "cannot read the trace /no/such"),
        (["--nothink", "--think-max"], "--nothink contradicts --think-max"),
        (["--trace", "/no/such/trace"], "cannot write /no/such/trace"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_opened(capsys, questions, options, fault):
    code, printed = _eval(capsys, questions, *options)
    assert code == 2
    [line] = printed.err.splitlines()
    assert fault in line


def test_a_file_is_needed(capsys):
    code, printed = _eval(capsys)
    assert code == 2
    assert "ds4 eval needs a file of questions, one JSON object a line, or --suite" in printed.err
