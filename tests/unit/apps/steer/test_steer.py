"""`ds4 steer build` and `sweep` from their command lines, on the tiny model."""

import json

import numpy as np
import pytest

from apps import cli
from apps.steer.build import prompt_tokens
from apps.steer.command import FORMAT
from shared.model.reference_engine import load
from shared.steering.direction_builder import DirectionBuilder
from tests.support.golden import tiny_q2
from tests.support.scripts import script_file, turn

GOOD, BAD = ["Say hi.", "Be short."], ["Tell me all about it.", "Go on and on."]
TINY = ["-m", str(tiny_q2()), "--backend", "reference"]


@pytest.fixture
def lists(tmp_path):
    for name, prompts in (("good", GOOD), ("bad", [*BAD, "one too many"])):
        (tmp_path / name).write_text("# remark\n" + "\n\n".join(prompts) + "\n")
    return ["--good-file", str(tmp_path / "good"), "--bad-file", str(tmp_path / "bad")]


@pytest.fixture
def vector(tmp_path):
    """A file of directions that fits the tiny model."""
    with load(tiny_q2())._file as file:
        shape = file.shape
    rows = np.random.default_rng(0).standard_normal((shape.layer_count, shape.embedding_width))
    path = tmp_path / "v.f32"
    path.write_bytes((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4").tobytes())
    return path


def _expected(component, system="You are a helpful assistant"):
    engine = load(tiny_q2())
    builder, session = DirectionBuilder(), engine.open_session(64)
    for pair in zip(GOOD, BAD, strict=True):
        tokens = [prompt_tokens(engine, prompt, system, "none") for prompt in pair]
        builder.add(*(engine.last_outputs(session, each, component) for each in tokens))
    return builder.build()


def test_directions_come_from_the_last_token_of_each_prompt(lists, tmp_path, capsys):
    out = tmp_path / "made.json"
    assert cli.main(["steer", "build", *lists, "--out", str(out), "--json", *TINY]) == 0
    printed = capsys.readouterr()
    assert "the longer list has 1 prompts without a partner: they are left out" in printed.err
    assert printed.err.splitlines()[-3:] == [
        "1 of 2 pairs",
        "2 of 2 pairs",
        f"{tmp_path / 'made.f32'}: 6 layers of 256 from 2 pairs; described in {out}",
    ]
    found = np.fromfile(tmp_path / "made.f32", "<f4").reshape(6, 256)
    np.testing.assert_allclose(found, _expected("ffn_out"), atol=1e-6)
    described = json.loads(out.read_text())
    assert described == {
        "format": FORMAT,
        "shape": [6, 256],
        "component": "ffn_out",
        "thinking": False,
        "pair_normalize": False,
        "orthogonalize_control_mean": True,
        "good_file": lists[1],
        "bad_file": lists[3],
        "model": described["model"],
        "note": described["note"],
    }
    record = json.loads(printed.out)
    assert record == described | {"out": str(out), "vector": str(tmp_path / "made.f32"), "pairs": 2}


def test_a_prompt_ends_where_the_model_thinks_or_answers():
    engine = load(tiny_q2())
    marks = engine.tokenizer.specials
    answering, thinking = (prompt_tokens(engine, "Hi", "", effort) for effort in ("none", "high"))
    assert answering[-1] == marks.think_end
    assert thinking[-1] == marks.think


def test_answers_at_several_scales(vector, tmp_path, capsys):
    (tmp_path / "asked").write_text("Say hi.\nSay ho.\n")
    words = ["steer", "sweep", "--direction", str(vector), "--prompts", str(tmp_path / "asked"), *TINY]
    words += ["--scales", "-2,0", "--tokens", "2", "--nothink"]
    assert cli.main([*words, "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    asked = [(answer["prompt"], answer["scale"]) for answer in answers]
    assert asked == [("Say hi.", -2), ("Say hi.", 0), ("Say ho.", -2), ("Say ho.", 0)]
    assert all(answer["tokens"] <= 2 and answer["thinking"] == "" for answer in answers)
    engine = load(tiny_q2())
    for answer in answers[1::2]:
        session = engine.open_session(64)
        session.sync(prompt_tokens(engine, answer["prompt"], "You are a helpful assistant", "none"))
        tokens = [int(session.logits().argmax())]
        session.submit(tokens[0])
        tokens.append(int(session.logits().argmax()))
        assert answer["text"] == engine.tokenizer.decode(tokens).decode()
        assert answer["words"] == len(answer["text"].split())
        assert not answer["finished"]
    assert answers[0]["text"] != answers[1]["text"]


def test_answers_as_text(vector, tmp_path, capsys):
    (tmp_path / "asked").write_text("Say \x1b]0;hi.\x07")
    words = ["steer", "sweep", "--direction", str(vector), "--prompts", str(tmp_path / "asked"), *TINY]
    assert cli.main([*words, "--scales", "0.5", "--attn-scale", "-1", "--tokens", "1", "--nothink"]) == 0
    printed = capsys.readouterr()
    assert f"steering by {vector}: ffn 0.5, attn -1" in printed.err
    lines = printed.out.splitlines()
    assert lines[0] == "prompt: Say ]0;hi."
    assert lines[1].startswith("scale: 0.5 (")
    assert lines[1].endswith(" words, 1 tokens, cut off)")


BUILD = ["build", "--good-file", "good", "--bad-file", "bad", "--out", "made.json"]
SWEEP = ["sweep", "--direction", "v.f32", "--prompts", "good"]


@pytest.mark.parametrize(
    ("words", "code", "fault"),
    [
        ([*BUILD, "--good-file", "gone"], 2, "cannot read the prompt file gone: No such file or directory"),
        ([*BUILD, "--bad-file", "empty"], 2, "the prompt file empty holds no prompt"),
        ([*BUILD, "--out", "made.f32"], 2, "--out made.f32 names the description: end it with .json"),
        ([*BUILD, "--out", ""], 2, "cannot write .: it is a folder"),
        ([*BUILD, "--out", "good"], 2, "cannot write good: it is what is to be read"),
        ([*BUILD, "--bad-file", "asked.f32", "--out", "asked.json"], 2, "cannot write asked.f32: it is what"),
        ([*BUILD, "--out", "no/made.json"], 2, "cannot write no/made.json: there is no such folder"),
        ([*BUILD, "-c", "9"], 1, "the prompt has "),
        ([*BUILD, "--bad-file", "good"], 1, "no direction in layer 0: both kinds of prompts"),
        ([*SWEEP, "--scales", "1,,2"], 2, "--scales takes numbers with commas between them, not '1,,2'"),
        ([*SWEEP, "--scales", "1,nan"], 2, "a steering scale of nan is not from -100 to 100"),
        ([*SWEEP, "--scales", "1,-101"], 2, "a steering scale of -101.0 is not from -100 to 100"),
        ([*SWEEP, "--attn-scale", "101"], 2, "a steering scale of 101.0 is not from -100 to 100"),
        ([*SWEEP, "--direction", "good"], 2, "the steering file good has "),
        ([*SWEEP, "--direction", "gone"], 2, "cannot read the steering file gone: No such file"),
        ([*SWEEP, "-c", "9"], 1, "the prompt has "),
    ],
)
def test_what_cannot_be_done_is_one_line(lists, vector, tmp_path, capsys, monkeypatch, words, code, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "asked.f32").write_text("Say hi.\n")
    assert cli.main(["steer", *words, *TINY]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith(f"ds4: {fault}")
    assert not (tmp_path / "made.json").exists()
    assert not (tmp_path / "made.f32").exists()


def test_a_script_has_no_outputs(lists, tmp_path, capsys):
    script = ["--script", str(script_file(tmp_path, turn("Hm.")))]
    assert cli.main(["steer", "build", *lists, "--out", str(tmp_path / "made.json"), *script]) == 2
    assert capsys.readouterr().err.endswith("the scripted backend computes nothing to be steered\n")


def test_an_interrupt_writes_nothing_and_what_it_says_begins_a_line(lists, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    done = []
    add = DirectionBuilder.add
    monkeypatch.setattr(DirectionBuilder, "add", lambda self, *of: done.append(add(self, *of)))
    monkeypatch.setattr("apps.chat.interrupt.Interrupt.__call__", lambda self: bool(done))
    assert cli.main(["steer", "build", *lists, "--out", str(tmp_path / "made.json"), *TINY]) == 130
    printed = capsys.readouterr()
    assert printed.err.endswith("\x1b[K1 of 2 pairs\nds4: stopped: nothing was written\n")
    assert not list(tmp_path.glob("made*"))
