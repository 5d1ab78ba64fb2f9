"""Steering changes how much the embedded model says: directions between questions that are answered in
sentences and sums, which are answered with a number."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from apps import cli
from bench.embedded_model import engine_talk, numbers
from bench.embedded_model.split import Split
from tests.support.embedded_model import model_file

_PAIRS, _ASKED = 16, 4
# How much is enough, and not yet too much, depends on the weights.
_TERSE = (2, 4, 8)


@pytest.fixture
def directions(tmp_path: Path) -> Path:
    """Made by `ds4 steer build` from questions that the model was trained on."""
    source = random.Random(1)
    topics = sorted(engine_talk.topics(), key=lambda topic: -len(topic.answer))[:_PAIRS]
    files = {
        "good": [topic.wordings[Split.TRAIN][0] for topic in topics],
        "bad": [numbers.add(source, Split.TRAIN).question for _ in topics],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines))
    made = ["--good-file", str(tmp_path / "good"), "--bad-file", str(tmp_path / "bad")]
    assert cli.main(["steer", "build", *made, "--out", str(tmp_path / "made.json"), *_model()]) == 0
    return tmp_path / "made.f32"


def _model() -> list[str]:
    return ["-m", str(model_file()), "--backend", "reference"]


def _words(
    directions: Path, asked: list[str], scales: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> dict[int, float]:
    """Scale to the mean number of words of the answers."""
    prompts = directions.with_name("asked")
    prompts.write_text("\n".join(asked))
    capsys.readouterr()
    tried = ["--scales", ",".join(map(str, scales)), "--prompts", str(prompts), "--nothink", "-n", "40"]
    assert cli.main(["steer", "sweep", "--direction", str(directions), *tried, "--json", *_model()]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {
        scale: sum(answer["words"] for answer in answers if answer["scale"] == scale) / len(asked)
        for scale in scales
    }


def test_sentences_shrink_to_a_word(directions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics = sorted(engine_talk.topics(), key=lambda topic: -len(topic.answer))[_PAIRS : _PAIRS + _ASKED]
    talk = [topic.wordings[Split.HELD_OUT][0] for topic in topics]
    words = _words(directions, talk, (0, *_TERSE), capsys)
    assert words[0] > 6
    assert min(words[scale] for scale in _TERSE) < words[0] / 2, words
