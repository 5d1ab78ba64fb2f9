"""The file of questions: what is read, and how each fault is told."""

import json

import pytest

from shared.errors import UsageError
from shared.questions.line_set import LineSet
from shared.questions.prompt import user_text
from shared.questions.question import Question, read_questions

INTEGER = {"source": "own", "id": "1", "question": "How many?", "answer": "007"}
CHOICE = {"source": "own", "id": "2", "question": "Which?", "answer": "b", "choices": ["left", "right"]}


def _file(folder, *lines):
    path = folder / "q.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_questions_come_in_order_and_in_normal_form(tmp_path):
    lines = {**INTEGER, "id": 3, "kind": "lines", "answer": "20-22, 12", "title": "Overflow", "domain": "C"}
    found = read_questions(_file(tmp_path, INTEGER, "", CHOICE, lines))
    assert found == [
        Question("own", "1", "How many?", "7", "integer"),
        Question("own", "2", "Which?", "B", "choice", ("left", "right")),
        Question("own", "3", "How many?", "12,20-22", "lines", domain="C", title="Overflow"),
    ]
    assert found[1].name == "own/2"


def test_what_is_asked(tmp_path):
    integer, choice = read_questions(_file(tmp_path, INTEGER, CHOICE))
    assert user_text(integer).startswith("How many?\n\nSolve this. ")
    assert user_text(integer).endswith("\nAnswer: <integer>")
    assert user_text(choice).startswith("Which?\n\nChoices:\nA. left\nB. right\n\nSolve this. ")
    assert user_text(choice).endswith("\nAnswer: <letter>")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ({**INTEGER, "source": ""}, "`source` must be a text of one line"),
        ({**INTEGER, "id": None}, "`id` must be a text of one line"),
        ({**INTEGER, "id": True}, "`id` must be a text of one line"),
        ({**INTEGER, "title": "a\x1b[2J"}, "`title` must be a text of one line"),
        ({**INTEGER, "question": "  "}, "`question` must be a text"),
        ({**INTEGER, "question": "\ud800"}, "`question` holds half of a character"),
        ({**INTEGER, "answer": "x"}, "`answer` must be digits"),
        ({**INTEGER, "answer": "-3"}, "`answer` must be digits"),
        ({**INTEGER, "answer": "1" * 32}, "`answer` must be a text of 1 to 31 characters"),
        ({**INTEGER, "kind": "essay"}, "`kind` must be choice, integer, lines"),
        ({**INTEGER, "kind": "choice"}, "a question of kind `choice` needs `choices`"),
        ({**CHOICE, "kind": "lines"}, "a question of kind `lines` has `choices`"),
        ({**INTEGER, "kind": "lines", "answer": "22-20"}, "`answer` must be lines from 0 to 255"),
        ({**INTEGER, "kind": "lines", "answer": "256"}, "`answer` must be lines from 0 to 255"),
        ({**CHOICE, "answer": "C"}, "`answer` must be a letter from A to B"),
        ({**CHOICE, "choices": ["one"]}, "`choices` must be a list of 2 to 10 texts"),
        ({**CHOICE, "choices": ["one", 2]}, "`choices` must hold texts only"),
        (CHOICE, "'own/2' occurs twice"),
    ],
)
def test_a_bad_line_is_told_with_its_number(tmp_path, line, fault):
    with pytest.raises(UsageError) as refused:
        read_questions(_file(tmp_path, CHOICE, "", line))
    assert f"line 3: {fault}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_empty_file_is_told(tmp_path):
    with pytest.raises(UsageError, match="the file holds none"):
        read_questions(_file(tmp_path, ""))


def test_line_sets():
    assert str(LineSet.parse("5,3,4 , 9 - 11")) == "3-5,9-11"
    assert str(LineSet.find("lines 7, 9–10 and 300")) == "7,9-10,300"
    assert str(LineSet.find("10-8")) == "8,10"
    assert str(LineSet.find("none")) == ""
    assert LineSet.parse("") is None
    accepted = LineSet.parse("20-22")
    assert LineSet.find("20 and 22").within(accepted)
    assert not LineSet.find("20 and 23").within(accepted)
    assert not LineSet.find("").within(accepted)
    assert not LineSet.find("9" * 100_000).within(accepted)
