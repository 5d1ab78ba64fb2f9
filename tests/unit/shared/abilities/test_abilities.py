"""Cases of abilities: the file of them, and how the model's turns are judged."""

import gzip
import json

import pytest

from shared.abilities.case import (
    AbilityCase,
    ExpectedAnswer,
    ExpectedCall,
    first_of_each,
    read_cases,
    write_cases,
)
from shared.abilities.run import run_case
from shared.errors import UsageError
from tests.support.scripts import scripted, turn

TOOL = {
    "name": "open_door",
    "description": "Open a door",
    "parameters": {"type": "object", "properties": {"floor": {"type": "integer"}}, "required": ["floor"]},
}
ANSWER = AbilityCase("numbers", "1", "", "What is 2 plus 3?", "none", (ExpectedAnswer("5"),))
CALL = AbilityCase(
    "tools",
    "1",
    "Be kind.",
    "Open it on floor 3.",
    "high",
    (ExpectedCall("open_door", {"floor": 3}, '{"open": true}'), ExpectedAnswer("It is open.")),
    (TOOL,),
)


def _block(name="open_door", floor="3", parameter="floor"):
    tag = "｜DSML｜"
    return [
        f'<{tag}tool_calls>\n<{tag}invoke name="{name}">\n',
        f'<{tag}parameter name="{parameter}" string="false">{floor}</{tag}parameter>\n',
        f"</{tag}invoke>\n</{tag}tool_calls>",
    ]


# Between the parameters of two calls.
_SECOND = ['</｜DSML｜invoke>\n<｜DSML｜invoke name="open_door">\n']


def _run(case, *turns):
    engine = scripted(*turns)
    session = engine.open_session(8000)
    return run_case(engine, session, case, 400, lambda: False)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "cases.gz"
    write_cases(path, [ANSWER, CALL])
    assert read_cases(path) == [ANSWER, CALL]
    first = path.read_bytes()
    write_cases(path, [ANSWER, CALL])
    assert path.read_bytes() == first


def packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)  # names of tests hold it, and must not change


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"no gzip", "cannot read the cases"),
        (packed(b"{"), "line 1: JSONDecodeError"),
        (packed(json.dumps(ANSWER.record() | {"effort": "wild"}).encode()), "unknown effort 'wild'"),
        (packed(json.dumps(ANSWER.record() | {"expected": []}).encode()), "nothing is expected"),
        (packed(b'{"ability": "x"}'), "line 1: KeyError: 'effort'"),
        (packed(json.dumps(ANSWER.record()).encode())[:-9], "cannot read the cases"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path, content, fault):
    (tmp_path / "cases.gz").write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_cases(tmp_path / "cases.gz")
    assert fault in str(refused.value)


def test_a_sample_is_spread_over_each_ability():
    cases = [AbilityCase(name, str(n), "", "?", "none", ()) for name in "ab" for n in range(8)]
    assert [(case.ability, case.id) for case in first_of_each(cases, 2)] == [
        ("a", "0"),
        ("a", "4"),
        ("b", "0"),
        ("b", "4"),
    ]
    assert first_of_each(cases, None) == first_of_each(cases, 8) == first_of_each(cases, 99) == cases


def test_an_answer_counts_word_for_word():
    result = _run(ANSWER, turn(" 5\n"))
    assert (result.passed, result.wanted, result.got) == (True, "5", "5")
    assert result.generated == 3
    assert not _run(ANSWER, turn("It is 5")).passed
    assert not _run(ANSWER, turn()).passed


def test_thinking_that_does_not_end_is_no_answer():
    case = AbilityCase("numbers", "1", "", "?", "high", (ExpectedAnswer("5"),))
    assert _run(case, turn("hm", "</think>", "5")).passed
    result = _run(case, turn("5"))
    assert (result.passed, result.got) == (False, "(still thinking) 5")


def test_a_call_is_judged_before_its_result_is_given():
    result = _run(CALL, turn("hm", "</think>", *_block()), turn("done", "</think>", "It is open."))
    assert (result.passed, result.got) == (True, "It is open.")
    wrong = _run(CALL, turn("hm", "</think>", *_block()), turn("done", "</think>", "It is closed."))
    assert (wrong.passed, wrong.wanted, wrong.got) == (False, "It is open.", "It is closed.")


@pytest.mark.parametrize(
    "block",
    [
        _block(floor="4"),
        _block(floor='"3"'),
        _block(floor="3.0"),
        _block(name="close_door"),
        _block(parameter="level"),
        ["I open it on floor 3."],
        [*_block()[:2], *_SECOND, *_block()[1:]],
    ],
)
def test_any_other_call_is_wrong(block):
    result = _run(CALL, turn("hm", "</think>", *block), turn("done", "</think>", "It is open."))
    assert not result.passed
    assert result.wanted == 'open_door({"floor": 3})'


def test_an_answer_with_a_call_beside_it_is_wrong():
    case = AbilityCase("x", "1", "", "?", "none", (ExpectedAnswer("It is open."),), (TOOL,))
    assert _run(case, turn("It is open.")).passed
    assert not _run(case, turn("It is open.", *_block())).passed
