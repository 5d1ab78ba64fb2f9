"""`ds4 chat` against the golden data: the tokens it generates and the logits it dumps."""

import io
import json
import sys

import numpy as np
import pytest

from apps import cli
from tests.support.golden import golden_json, golden_logits, model_path, tiny_q2

BACKENDS = ["mlx", "reference"]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.delenv("DS4_BACKEND", raising=False)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", ["tiny-q2", pytest.param("tiny-q4", marks=pytest.mark.long)])
def test_the_long_prompt_gives_the_golden_tokens(model, backend, tmp_path, capsys):
    (tmp_path / "long.txt").write_text(golden_json("prompts.json")["long"]["text"])
    arguments = ["chat", "-m", str(model_path(model)), "--backend", backend, "--ctx", "2048"]
    arguments += ["--prompt-file", "long.txt", "--think", "-sys", "You are a helpful assistant"]
    assert cli.main([*arguments, "-n", "32", "--temp", "0", "--trace", "trace"]) == 0
    event = json.loads((tmp_path / "trace").read_text())
    golden = golden_logits(model, "long")
    assert event["prompt_tokens"] == golden["tokens"].tolist() == golden_json("prompts.json")["long"]["ids"]
    assert event["tokens"] == golden["greedy_ids_kv"].tolist()
    out = capsys.readouterr().out
    # Everything comes before the thinking ends, so that it is shown as generated.
    assert out.removesuffix("\n") == event["text"].removesuffix("\n")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("model", "prompt", "limit"),
    [
        ("tiny-q2", "short", 0.3),
        ("tiny-q2", "medium", 0.3),
        ("tiny-q2", "random", 1.0),
        ("tiny-q4", "medium", 0.3),
        pytest.param("tiny-pro-q2", "long", 1.0, marks=pytest.mark.long),
    ],
)
def test_exact_tokens_give_the_golden_logits(model, prompt, limit, backend, tmp_path):
    golden = golden_logits(model, prompt)
    (tmp_path / "ids.json").write_text(json.dumps(golden["tokens"].tolist()))
    arguments = ["-m", str(model_path(model)), "--backend", backend, "--ctx", "2048"]
    assert cli.main([*arguments, "--prompt-tokens", "ids.json", "--dump-logits", "logits.json"]) == 0
    dump = json.loads((tmp_path / "logits.json").read_text())
    assert golden["positions"][-1] == len(golden["tokens"]) - 1
    expected = golden["logits_kv"][-1]
    assert dump["prompt_tokens"] == len(golden["tokens"])
    assert np.abs(np.array(dump["logits"]) - expected).max() <= limit
    assert dump["argmax_token"]["id"] == int(golden["argmax_kv"][-1])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("model", "prompt"),
    [
        ("tiny-q2", "short"),
        ("tiny-q2", "random"),
        ("tiny-q4", "medium"),
        pytest.param("tiny-pro-q2", "long", marks=pytest.mark.long),
    ],
)
def test_the_stored_answer_fed_as_tokens_gives_its_last_logits(model, prompt, backend, tmp_path):
    """Greedy runs of these prompts meet near ties, so the stored ids are fed."""
    golden = golden_logits(model, prompt)
    fed = [*golden["tokens"].tolist(), *golden["greedy_ids_kv"][:-1].tolist()]
    (tmp_path / "ids.json").write_text(json.dumps(fed))
    arguments = ["-m", str(model_path(model)), "--backend", backend, "--ctx", "2048"]
    assert cli.main([*arguments, "--prompt-tokens", "ids.json", "--dump-logits", "logits.json"]) == 0
    dump = json.loads((tmp_path / "logits.json").read_text())
    assert dump["prompt_tokens"] == len(fed)
    assert np.abs(np.array(dump["logits"]) - golden["greedy_logits_kv"][-1]).max() <= 1.0


def test_the_dump_of_the_short_prompt_agrees_with_the_golden_dump(tmp_path):
    text = golden_json("prompts.json")["short"]["text"]
    arguments = ["-m", str(tiny_q2()), "-p", text, "--nothink", "--ctx", "2048", "-n", "8"]
    arguments += ["--dump-logits", "l.json", "--dump-logprobs", "p.json", "--logprobs-top-k", "5"]
    assert cli.main(arguments) == 0
    ours, golden = json.loads((tmp_path / "l.json").read_text()), golden_json("cli-dump-logits.json")
    assert {key: ours[key] for key in ("prompt_tokens", "ctx", "vocab", "quant_bits", "argmax_token")} == {
        key: golden[key] for key in ("prompt_tokens", "ctx", "vocab", "quant_bits", "argmax_token")
    }
    # The golden dump was made with 8-bit activations, which differ by about this much.
    difference = np.abs(np.array(ours["logits"]) - np.array(golden["logits"]))
    assert np.median(difference) < 0.25
    steps = json.loads((tmp_path / "p.json").read_text())["steps"]
    golden_steps = golden_json("cli-dump-logprobs.json")["steps"]
    assert (len(steps), steps[0]["selected"]) == (len(golden_steps), golden_steps[0]["selected"])
