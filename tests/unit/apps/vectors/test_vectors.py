"""`ds4 vectors`: checked against the C engine's logits and our recorded ones, and every way to fail."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apps import cli
from shared.evaluation.local_vectors import LocalCandidate, LocalCase, local_text, read_local
from shared.evaluation.official_vectors import Candidate, OfficialStep, official_text, read_official
from tests.support.golden import golden_json, golden_logits, tiny_q2
from tests.support.scripts import script_file, turn

RECORDED = Path(__file__).parents[4] / "bench" / "vectors"
TINY = ["--backend", "reference", "-m", str(tiny_q2())]


def _vectors(capsys, path, *options):
    code = cli.main(["vectors", str(path), *map(str, options)])
    return code, capsys.readouterr()


def _spoken(folder, *turns):
    return ["--backend", "scripted", "--script", script_file(folder, *turns)]


def test_the_c_engines_logits_pass_and_changed_ones_do_not(tmp_path, capsys):
    golden = golden_logits("tiny-q2", "short")
    position, logits = int(golden["positions"][-1]), golden["logits_kv"][-1]
    best = np.argsort(-logits, kind="stable")[:64]
    top = tuple(LocalCandidate(int(token), float(logits[token])) for token in best)
    (tmp_path / "short.txt").write_text(golden_json("prompts.json")["short"]["text"])
    case = LocalCase("short", "chat", 64, position + 1, "short.txt", top)
    path = tmp_path / "golden.vec"
    path.write_text(local_text([case], "of the C engine"))
    code, printed = _vectors(capsys, path, *TINY)
    assert code == 0
    assert printed.out.startswith("PASSED short top5_overlap=5 top20_overlap=")

    wrong = {
        "swapped": ((top[1], top[0], *top[2:]), f"the best token is [{best[0]}], recorded {best[1]}"),
        "far": ((top[0]._replace(logit=top[0].logit + 9), *top[1:]), "a logit is 9.0"),
        "strange": ((top[0], *(LocalCandidate(1200 + n, 0.0) for n in range(63))), "of the best 5 tokens "),
        "outside": ((LocalCandidate(5000, 1.0),), "token 5000 is outside the vocabulary of 1280"),
    }
    changed = [replace(case, id=name, top=candidates) for name, (candidates, _) in wrong.items()]
    path.write_text(local_text([case, *changed], "changed"))
    code, printed = _vectors(capsys, path, *TINY)
    assert code == 1
    assert "1 passed, 4 failed, 0 skipped" in printed.out
    for name, (_, problem) in wrong.items():
        told = printed.out.partition(f"FAILED {name}")[2]
        assert problem in told.partition("FAILED")[0], name


@pytest.mark.parametrize("name", ["tiny-local.vec", "tiny-official.vec"])
def test_recorded_vectors_of_the_tiny_model_hold_on_both_backends(name, capsys):
    code, printed = _vectors(capsys, RECORDED / name, *TINY, "--skip", "harbour", "--json")
    assert code == 0
    record = json.loads(printed.out)
    assert record["skipped"] == ["harbour"]
    assert [case["passed"] for case in record["cases"]] == [True]
    pytest.importorskip("mlx.core")
    code, printed = _vectors(
        capsys, RECORDED / name, "--backend", "mlx", "-m", tiny_q2(), "--skip", "harbour"
    )
    assert code == 0, printed.out


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny-local.vec", "tiny-official.vec"])
def test_recorded_vectors_of_a_longer_prompt_hold_too(name, capsys):
    pytest.importorskip("mlx.core")
    code, printed = _vectors(capsys, RECORDED / name, "--backend", "mlx", "-m", tiny_q2())
    assert code == 0, printed.out
    assert "2 passed, 0 failed, 0 skipped" in printed.out


@pytest.mark.parametrize("mode", ["text", "rendered", "chat"])
def test_what_is_recorded_is_found_again(tmp_path, capsys, mode):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("The sky over the harbour.")
    path = tmp_path / "new.vec"
    options = [*TINY, "--mode", mode, "--frontier", "5", "--ctx", "100", "--top", "20"]
    code, printed = _vectors(capsys, path, "--record", prompt, *options)
    assert (code, printed.out) == (0, f"recorded 1 prompts in {path}\n")
    [case] = read_local(path)
    assert (case.id, case.mode, case.context, case.frontier, len(case.top)) == ("prompt", mode, 100, 5, 20)
    code, printed = _vectors(capsys, path, *TINY)
    assert code == 0
    assert printed.out.startswith("PASSED prompt top5_overlap=5 top20_overlap=20 max_logit_delta=")


def test_a_recorded_answer_ends_with_the_model(tmp_path, capsys):
    (tmp_path / "p.txt").write_text("Say hi")
    path, script = tmp_path / "new.vec", _spoken(tmp_path, turn("hi", match="Say hi"))
    code, _ = _vectors(
        capsys, path, "--record", tmp_path / "p.txt", "--format", "official", "--steps", "9", *script
    )
    assert code == 0
    [case] = read_official(path)
    assert [step.selected for step in case.steps[:2]] == [b"h", b"i"]
    assert len(case.steps) == 3
    assert _vectors(capsys, path, *script)[0] == 0
    code, printed = _vectors(capsys, path, *_spoken(tmp_path, turn("ho")))
    assert code == 1
    assert "step 1: the best token is 'o', recorded 'i'" in printed.out
    assert "step 2" not in printed.out


def test_each_official_candidate_must_be_found_near_its_probability(tmp_path, capsys):
    path = tmp_path / "tiny-official.vec"
    [short, _] = read_official(RECORDED / path.name)
    short = replace(short, prompt_file=str(RECORDED / short.prompt_file))
    first, *others = short.steps
    for candidate, problem in (
        (Candidate(b"never said", -1.0), "step 0: 'never said' is not among the best 20"),
        (first.top[0]._replace(logprob=first.top[0].logprob - 4.1), "step 0: the log probability of "),
    ):
        steps = (OfficialStep(first.selected, (candidate,)), *others)
        path.write_text(official_text([replace(short, steps=steps)], "changed"))
        code, printed = _vectors(capsys, path, *TINY)
        assert code == 1
        assert problem in printed.out
    near = first.top[0]._replace(logprob=first.top[0].logprob - 3.9)
    path.write_text(official_text([replace(short, steps=(OfficialStep(first.selected, (near,)),))], "near"))
    code, printed = _vectors(capsys, path, *TINY)
    assert code == 0
    assert float(printed.out.split("max_logprob_delta=")[1].split()[0]) == pytest.approx(3.9, abs=1e-3)


def test_the_disputed_case_is_left_out_unless_wanted(tmp_path, capsys):
    lines = []
    for name, first in (("fact", "h"), ("long_memory_archive", "x")):
        lines += [f"case {name} 4096 1 p.txt", f"step 0 {first.encode().hex()} 0", "end"]
    (tmp_path / "p.txt").write_text("Say hi")
    path, script = tmp_path / "a.vec", _spoken(tmp_path, turn("hi"))
    path.write_text("\n".join(lines))
    code, printed = _vectors(capsys, path, *script)
    assert code == 0
    assert printed.out.splitlines()[1:] == [
        "SKIPPED long_memory_archive",
        "1 passed, 0 failed, 1 skipped",
    ]
    code, printed = _vectors(capsys, path, *script, "--skip", "fact")
    assert code == 1
    assert "FAILED long_memory_archive" in printed.out
    code, printed = _vectors(capsys, path, *script, "--skip", "fact", "--skip", "long_memory_archive")
    assert code == 2
    assert "every case of" in printed.err


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("case a 10 1 gone.txt\nstep 0 68 0\nend\n", "cannot read the prompt of case 'a', gone.txt: No such"),
        ("case a text 10 2 gone.txt 1\ntop 0 1 1\nend\n", "cannot read the prompt of case 'a', gone.txt"),
        ("", "the vector file a.vec is empty: it holds no case"),
        ("# nothing but words\n", "the vector file a.vec is empty: it holds no case"),
        ("case a 10 1 p.txt\n", "ends inside"),
        ("hello\n", "line 1: expected `case` and 4 words in a case, found 'hello'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path, capsys, monkeypatch, content, fault):
    monkeypatch.chdir(tmp_path)
    Path("a.vec").write_text(content)
    code, printed = _vectors(capsys, "a.vec", *TINY)
    assert code == 2
    [line] = printed.err.splitlines()
    assert fault in line


@pytest.mark.parametrize("name", ["tiny-local.vec", "tiny-official.vec"])
def test_a_case_that_is_not_there_cannot_be_left_out(capsys, name):
    code, printed = _vectors(capsys, RECORDED / name, *TINY, "--skip", "harbour", "--skip", "foo")
    assert code == 2
    assert printed.err == f"ds4: --skip foo: {RECORDED / name} has no such case\n"


def test_a_prompt_that_is_too_short_or_cannot_be_named_is_told(tmp_path, capsys):
    (tmp_path / "p.txt").write_text("hi")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "p.txt").write_text("hi")
    (tmp_path / "a b.txt").write_text("hi")
    path, script = tmp_path / "a.vec", _spoken(tmp_path, turn("hi"))
    for options, fault in (
        (
            ["--record", tmp_path / "p.txt", "--frontier", "9"],
            "case 'p': the prompt has 2 tokens, fewer than 9",
        ),
        (["--record", tmp_path / "a b.txt"], "its path holds a blank"),
        (["--record", tmp_path / "p.txt", "--record", tmp_path / "sub/p.txt"], "would have the id 'p'"),
        (["--record", tmp_path / "p.txt", "--format", "official", "--top", "21"], "--top 21 is too many"),
    ):
        code, printed = _vectors(capsys, path, *options, *script)
        assert code == 2
        assert fault in printed.err
        assert not path.exists()
