"""`ds4 eval --suite`: the embedded model's abilities and the long story, on scripts and on the tiny model."""

import json
from collections import Counter

import pytest

from apps import cli
from apps.eval.ability_suite import FILE
from apps.eval.baselines import baseline_lines, read_baselines
from bench.embedded_model import vocabulary
from bench.embedded_model.cases import cases as conversations
from bench.embedded_model.rendered import PROFILE, tokens_of
from bench.embedded_model.split import Split, split_of
from bench.embedded_suite import DISTANCES, ability_case, suite
from shared.abilities.case import ExpectedAnswer, ExpectedCall, first_of_each, read_cases, write_cases
from shared.abilities.controls import ControllableEngine
from shared.abilities.run import case_tokens
from shared.model.reference_engine import load as load_reference
from shared.scripted.engine import ScriptedEngine
from shared.story.story import make_story
from tests.support.golden import tiny_q2
from tests.support.scripts import script_file, turn

ABILITIES = ("engine", "tools", "numbers", "recall", "near recall")


@pytest.fixture(scope="module")
def cases():
    return read_cases(FILE)


def _eval(capsys, *options):
    code = cli.main(["eval", *map(str, options)])
    return code, capsys.readouterr()


def test_the_package_holds_200_different_cases_of_each_ability(cases):
    assert Counter(case.ability for case in cases) == dict.fromkeys(ABILITIES, 200)
    assert len({(case.ability, case.id) for case in cases}) == len(cases)
    assert len({(case.ability, case.user, case.effort) for case in cases}) == len(cases)
    for ability, distances in DISTANCES.items():
        found = Counter(case.id.partition("-")[0] for case in cases if case.ability == ability)
        assert found == {str(distance): 50 for distance in distances}
    # A share of them thinks first.
    assert all(
        50 < sum(c.effort == "high" for c in cases if c.ability == a) < 150 for a in ("tools", "recall")
    )


def test_no_case_holds_a_name_that_was_trained_on(cases):
    for case in cases:
        for step in case.expected:
            if isinstance(step, ExpectedCall):
                names = [step.tool, *step.arguments]
                assert all(split_of(name) is Split.HELD_OUT for name in names), case.id
            elif case.ability in DISTANCES:
                person, _, number = step.text.partition("=")
                assert split_of(person) is Split.HELD_OUT
                assert person in case.user
                assert number in case.user


def test_the_generator_makes_such_cases(tmp_path):
    made = suite(4, seed=1)
    assert Counter(case.ability for case in made) == dict.fromkeys(ABILITIES, 4)
    write_cases(tmp_path / "cases.gz", made)
    assert read_cases(tmp_path / "cases.gz") == made
    assert suite(4, seed=1) == made


def test_a_case_asks_as_training_did():
    tokenizer = vocabulary.tokenizer()
    for ability in ("engine", "tools", "numbers", "recall"):
        for drawn in conversations(ability, 5, seed=1):
            case = ability_case(ability, "1", drawn.conversation)
            asked = case_tokens(tokenizer, case, PROFILE)
            assert tokens_of(drawn.conversation, tokenizer).ids[: len(asked)] == asked


def _right_turns(cases):
    for case in cases:
        for step in case.expected:
            thought = ["hm", "</think>"] if case.effort != "none" else []
            if isinstance(step, ExpectedAnswer):
                yield turn(*thought, step.text)
            else:
                yield turn(*thought, *_call(step))


def _call(step):
    tag = "｜DSML｜"
    yield f'<{tag}tool_calls>\n<{tag}invoke name="{step.tool}">\n'
    for name, value in step.arguments.items():
        kind = "true" if isinstance(value, str) else "false"
        yield f'<{tag}parameter name="{name}" string="{kind}">{value}</{tag}parameter>\n'
    yield f"</{tag}invoke>\n</{tag}tool_calls>"


def test_a_model_that_says_the_right_thing_passes(tmp_path, capsys, cases):
    chosen = first_of_each(cases, 2)
    script = ["--backend", "scripted", "--script", script_file(tmp_path, *_right_turns(chosen))]
    code, printed = _eval(capsys, "--suite", "embedded", "--questions", 2, "-n", 2000, *script)
    assert code == 0
    assert printed.out.splitlines() == [
        "engine           2/2 100.0 %  passed",
        "tools            2/2 100.0 %  passed",
        "numbers          2/2 100.0 %  passed",
        "recall           2/2 100.0 %  passed",
        "recall@1000      1/1 100.0 %  passed",
        "recall@4000      1/1 100.0 %  passed",
        "near recall      2/2 100.0 %  passed",
        "near recall@60   1/1 100.0 %  passed",
        "near recall@250  1/1 100.0 %  passed",
        *baseline_lines(read_baselines()),
    ]
    told = printed.err.splitlines()
    assert "10 cases to be measured" in told
    assert told.index("10 cases to be asked") < told.index(f"asked 10/10 near recall/{chosen[-1].id} ok")


def test_one_ability_that_falls_short_is_a_failure(tmp_path, capsys, cases):
    chosen = first_of_each(cases, 1)
    turns = list(_right_turns(chosen))
    turns[-1] = turn("</think>", "no idea")
    script = ["--backend", "scripted", "--script", script_file(tmp_path, *turns)]
    trace = tmp_path / "trace"
    code, printed = _eval(
        capsys, *f"--suite embedded --questions 1 -n 2000 --json --trace {trace}".split(), *script
    )
    record = json.loads(printed.out)
    assert code == 1
    assert record["abilities"]["tools"] == {"right": 1, "asked": 1, "passed": True}
    assert record["abilities"]["near recall"] == {"right": 0, "asked": 1, "passed": False}
    assert record["baselines"] == read_baselines()
    [failed] = record["failed"]
    assert failed["wanted"] == chosen[-1].expected[-1].text
    assert "no idea" in failed["got"]
    traced = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [line["passed"] for line in traced] == [True, True, True, True, False]


def test_a_recalled_story_passes_and_a_lost_fact_does_not(tmp_path, capsys):
    facts = make_story(20).facts
    lines = [f"{name}={number}\n" for name, number in facts]
    for said, code, told in ((lines, 0, "2 of 2 facts"), (lines[:1], 1, "1 of 2 facts")):
        script = ["--backend", "scripted", "--script", script_file(tmp_path, turn(*said))]
        found, printed = _eval(capsys, "--suite", "story", "--scenes", 20, *script)
        assert found == code
        assert printed.out.startswith("".join(said))
        assert f" tokens: {told}" in printed.out
    assert "missing " + lines[1] in printed.out
    code, printed = _eval(capsys, "--suite", "story", "--scenes", 20, "--json", *script)
    assert code == 1
    assert json.loads(printed.out)["missing"] == [lines[1].strip()]


@pytest.mark.long
def test_the_tiny_model_takes_all_kinds_of_cases(capsys):
    code, printed = _eval(capsys, "--suite", "embedded", "--questions", 1, "-m", tiny_q2(), "-n", 8)
    assert code == 1
    for ability in ABILITIES:
        assert f"{ability:<16} 0/1 0.0 %  FAILED" in printed.out


@pytest.mark.parametrize(
    ("answers", "demand", "code"),
    [
        ({"masked-compression": (4, 0)}, "masked-compression: fewer than 20%", 0),
        ({"masked-compression": (4, 1)}, "masked-compression: fewer than 20%", 1),
        ({"masked-compression": (0, 0)}, "masked-compression: fewer than 20%", 1),
        ({"random-indexer": (4, 2)}, "random-indexer: at most half as many", 0),
        ({"random-indexer": (4, 3)}, "random-indexer: at most half as many", 1),
    ],
)
def test_a_control_compares_far_recall_with_and_without_memory(
    tmp_path, capsys, cases, monkeypatch, answers, demand, code
):
    [(control, (plain, controlled))] = answers.items()
    chosen = first_of_each([case for case in cases if case.ability == "recall"], 4)
    right = list(_right_turns(chosen))
    wrong = [turn("</think>", "no idea") if case.effort != "none" else turn("no idea") for case in chosen]
    turns = [*right[:plain], *wrong[plain:], *right[:controlled], *wrong[controlled:]]
    script = ["--backend", "scripted", "--script", script_file(tmp_path, *turns)]
    opened = []

    class ControllableScript(ScriptedEngine):
        def open_controlled_session(self, context, control):
            opened.append(control)
            return self.open_session(context)

    monkeypatch.setattr("shared.scripted.engine.ScriptedEngine", ControllableScript)
    found, printed = _eval(
        capsys, "--suite", "embedded", "--control", control, "--questions", 4, "-n", 2000, *script
    )
    assert opened == [control]
    lines = printed.out.splitlines()
    assert f"recall           {plain}/4 {25 * plain}.0 %  as it is" in lines
    assert f"recall           {controlled}/4 {25 * controlled}.0 %  {control}" in lines
    assert lines[-1] == f"{demand} must be right: {'FAILED' if code else 'passed'}"
    assert found == code


def test_controls_are_told_apart_from_backends_without_them(tmp_path, capsys):
    script = ["--backend", "scripted", "--script", script_file(tmp_path, turn("hm"))]
    code, printed = _eval(
        capsys, "--suite", "embedded", "--control", "random-indexer", "--questions", 1, *script
    )
    assert code == 2
    assert "the scripted backend has no controls: use --backend reference" in printed.err
    assert isinstance(load_reference(tiny_q2()), ControllableEngine)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--suite", "embedded", "--nothink"], "--nothink does not go with --suite embedded"),
        (["--suite", "story", "--questions", 1], "--questions does not go with --suite story"),
        (["--suite", "story", "--case-sequence", "1"], "--case-sequence does not go with --suite story"),
        (["--suite", "story", "--scenes", "7"], "--scenes must be from 8 to 190, not 7"),
        (["--suite", "story", "--scenes", "0"], "--scenes must be from 8 to 190, not 0"),
        (["--suite", "story", "--scenes", "191"], "--scenes must be from 8 to 190, not 191"),
        (["--suite", "embedded", "--scenes", "3"], "--scenes belongs to --suite story"),
        (["--suite", "story", "--control", "random-indexer"], "--control belongs to --suite embedded"),
        (["q.jsonl", "--scenes", "20"], "--scenes belongs to --suite story"),
        (
            ["--suite", "story", "--ctx", "500", "-m", tiny_q2()],
            "--ctx 500 is too small for this suite: it needs",
        ),
        (["q.jsonl", "--suite", "story"], "ds4 eval needs a file of questions"),
        (["q.jsonl", "--json"], "--json does not go with a file of questions"),
    ],
)
def test_what_does_not_go_together_is_refused(capsys, options, fault):
    code, printed = _eval(capsys, *options)
    assert code == 2
    assert fault in printed.err
