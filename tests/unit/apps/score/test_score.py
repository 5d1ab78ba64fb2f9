"""`ds4 score` from its command line, on the tiny model and on scripts."""

import json

import numpy as np
import pytest

from apps import cli
from shared.evaluation.manifest import ScoreCase
from shared.evaluation.teacher_forcing import encode_cases, score_case
from shared.model.reference_engine import load
from tests.support.golden import tiny_q2
from tests.support.scripts import script_file, turn


def _manifest(folder, **texts):
    lines = []
    for name, (prompt, continuation) in texts.items():
        (folder / f"{name}.prompt").write_text(prompt)
        (folder / f"{name}.more").write_text(continuation)
        lines.append(f"{name}\t{name}.prompt\t{name}.more")
    path = folder / "manifest.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _spoken(folder, *turns):
    return ["--backend", "scripted", "--script", str(script_file(folder, *turns))]


def test_each_token_is_scored_behind_the_true_ones_before_it():
    engine = load(tiny_q2())
    [case] = encode_cases(engine, [ScoreCase("a", b"Hello", b"the sky and")], 64)
    assert case.prompt[0] == engine.tokenizer.specials.bos
    assert case.prompt[-1] == engine.tokenizer.specials.think_end
    wanted, likeliest = 0.0, []
    for done, target in enumerate(case.targets):
        session = engine.open_session(64)
        session.sync([*case.prompt, *case.targets[:done]])
        logits = session.logits().astype(np.float64)
        wanted -= logits[target] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        likeliest.append(int(logits.argmax()) == target)
        session.close()
    # The smallest context that holds the case is enough.
    score = score_case(engine.open_session(case.context), case, engine.power, lambda: False)
    assert (score.prompt_tokens, score.target_tokens) == (len(case.prompt), len(case.targets))
    assert score.nll == pytest.approx(wanted, rel=1e-6)
    assert (score.first_match, score.greedy_lcp) == (likeliest[0], [*likeliest, False].index(False))


def test_the_table_and_its_summary(tmp_path, capsys):
    manifest = _manifest(tmp_path, good=("Say hi", "hi"), half=("Say ho", "ha"), bad=("Say no", "xy"))
    script = _spoken(
        tmp_path, turn("hi", match="Say hi"), turn("ho", match="Say ho"), turn("no", match="Say no")
    )
    assert cli.main(["score", "--manifest", str(manifest), *script, "-o", str(tmp_path / "out.tsv")]) == 0
    printed = capsys.readouterr()
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert rows[0] == ["id", "prompt_tokens", "target_tokens", "nll", "avg_nll", "first_match", "greedy_lcp"]
    assert [(line[0], *line[2:3], *line[5:]) for line in rows[1:]] == [
        ("good", "2", "1", "2"),
        ("half", "2", "1", "1"),
        ("bad", "2", "0", "0"),
    ]
    assert printed.out == ""
    assert "scored 2/3: half avg_nll=" in printed.err
    assert "cases=3 tokens=6 avg_nll=" in printed.err
    assert "first_match=2 avg_lcp=1.000" in printed.err


def test_json_has_the_same_figures(tmp_path, capsys):
    manifest = _manifest(tmp_path, bad=("Say no", "xy"))
    script = _spoken(tmp_path, turn("no"))
    assert cli.main(["score", "--manifest", str(manifest), "--json", *script]) == 0
    record = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert record["summary"]["cases"] == 1
    assert record["cases"][0]["id"] == "bad"
    assert record["cases"][0]["greedy_lcp"] == 0


def test_two_tables_are_compared(tmp_path, capsys):
    manifest = _manifest(tmp_path, a=("Say a", "aa"), b=("Say b", "bb"))
    for name, words in (("old", ("aa", "xx")), ("new", ("aa", "bb"))):
        script = _spoken(tmp_path, turn(words[0], match="Say a"), turn(words[1], match="Say b"))
        table = str(tmp_path / f"{name}.tsv")
        assert cli.main(["score", "--manifest", str(manifest), *script, "-o", table]) == 0
    capsys.readouterr()
    tables = [str(tmp_path / "old.tsv"), str(tmp_path / "new.tsv")]
    assert cli.main(["score", "compare", *tables]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["cases 2", "tokens 4"]
    assert "case_wins_new_old_ties 1 0 1" in lines
    assert "first_token_matches_old_new 1 2" in lines
    assert lines[-3] == "best cases of new:"
    assert lines[-2].startswith("  b ")
    assert lines[-1] == "best cases of old: none"
    assert cli.main(["score", "compare", *tables, "--json"]) == 0
    record = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [pair["id"] for pair in record["best_of_new"]] == ["b"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ([], "ds4 score needs --manifest FILE.tsv"),
        (["--manifest", "gone.tsv"], "cannot read the manifest gone.tsv: No such file"),
        (["--ctx", "100"], "--ctx must be at least 1024 for scoring, not 100"),
        (["--ctx", "1024"], "case 'long' has 2004 + 1 tokens but --ctx is 1024: give --ctx 2005"),
        (["-o", "no/such.tsv"], "cannot write no/such.tsv: there is no such folder"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(tmp_path, capsys, monkeypatch, options, fault):
    monkeypatch.chdir(tmp_path)
    if options and options[0] != "--manifest":
        _manifest(tmp_path, long=("x" * 2000, "y"))
        options = ["--manifest", "manifest.tsv", *options]
    assert cli.main(["score", *options, *_spoken(tmp_path, turn("y"))]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith(f"ds4: {fault}")
