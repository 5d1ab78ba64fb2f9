"""`ds4 chat` from the command line, without a terminal."""

import io
import json
import signal
import subprocess
import sys

import pytest

from apps import cli
from tests.support.golden import GOLDEN, golden_json, tiny_q2
from tests.support.scripts import script_file, turn


@pytest.fixture(autouse=True)
def working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


@pytest.fixture
def ds4(tmp_path, capsys):
    """Runs `ds4` on a scripted engine; returns exit code, stdout, stderr lines."""

    def run(*arguments, turns=()):
        script = script_file(tmp_path, *(turns or [turn("A.", "</think>", "B")]))
        code = cli.main(["--script", str(script), "--ctx", "2000", *arguments])
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    return run


def test_one_prompt_one_answer(ds4):
    code, out, err = ds4("-p", "hi")
    assert (code, out) == (0, "A.\nB\n")
    assert err[0].startswith("weights 0.00 MiB, context buffers 0.01 MiB (ctx=2000, backend=scripted, ")
    assert err[0].endswith(")")
    assert all(f"{figure}=" in err[0] for figure in ("prefill_chunk", "raw_kv_rows", "compressed_kv_rows"))
    assert err[1].startswith("scripted engine")
    assert err[2] == "thinking on, effort high, effort profile official"
    assert err[-1].startswith("prefill: ")
    assert not any("\x1b" in line for line in err)


def test_one_prompt_saves_nothing(ds4, tmp_path):
    before = {*tmp_path.rglob("*")}
    assert ds4("-p", "hi", "-sys", "long " * 200)[0] == 0
    assert {*tmp_path.rglob("*")} - before == {tmp_path / "script.json"}


def test_thinking_is_on_until_it_is_turned_off(ds4):
    code, out, err = ds4("-p", "hi", "--nothink", turns=[turn("Hello")])
    assert (code, out) == (0, "Hello\n")
    assert "thinking off, effort profile official" in err


def test_text_in_a_pipe_is_one_prompt(ds4, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("café\n".encode())))
    assert ds4("--trace", "trace", "-sys", "", "--nothink")[0] == 0
    event = json.loads((tmp_path / "trace").read_text())
    assert event["prompt"].endswith("<｜User｜>café<｜Assistant｜></think>")


def test_an_empty_pipe_is_a_usage_error(ds4):
    code, out, err = ds4()
    assert (code, out) == (2, "")
    assert err == ["ds4: the prompt of standard input (no terminal and no -p) is empty"]


def test_the_budget_of_a_thinking_answer_is_explained(ds4):
    code, out, err = ds4("-p", "hi", "-n", "16", turns=[turn(*"x" * 50)])
    assert (code, out) == (0, "x" * 16 + "\n")
    assert "stopped at the limit of 16 tokens while still thinking: -n raises it" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-p", "a", "--prompt-file", "b"], "ds4: -p and --prompt-file both give a prompt: use one of them"),
        (["--inspect", "-p", "a"], "ds4: --inspect takes no prompt"),
        (["--perplexity-file", "f", "-p", "a"], "ds4: --perplexity-file takes no prompt"),
        (["--dump-tokens", "--inspect"],
         "ds4: --inspect and --dump-tokens are different runs: ask for one of them"),
        (["-p", "a", "--mtp", "f"], "ds4: --mtp: multi-token drafts are not part of this version"),
        (["-p", "a", "--directional-steering-ffn", "1"],
         "ds4: --dir-steering-ffn 1 needs --dir-steering-file FILE.f32"),
        (["--role", "worker"], "ds4: --role: distributed inference is not part of this version"),
        (["--imatrix-out", "f"],
         "ds4: --imatrix-out: importances are collected by `ds4 imatrix --dataset FILE --out FILE`"),
        (["--server"], "ds4: --server: use `ds4 serve`"),
        (["-p", "a", "--resume"],
         "ds4: --resume goes on with a conversation: it takes no prompt and no other kind of run"),
        (["--inspect", "--resume", "ab"],
         "ds4: --resume goes on with a conversation: it takes no prompt and no other kind of run"),
        (["--resume", "newest!"],
         "ds4: --resume takes the first hex digits of a session's id, not 'newest!': /list shows them"),
        (["-p", "a", "--think", "--nothink"], "ds4: --nothink contradicts --think: give one of them"),
        (["-p", "a", "--simulate-memory", "lots", "--backend", "reference", "--script", ""],
         "ds4: --script goes with --backend scripted, not reference"),
    ],
)  # fmt: skip
def test_contradictions_are_one_line_and_exit_code_2(ds4, arguments, line):
    assert ds4(*arguments) == (2, "", [line])


@pytest.mark.parametrize(
    "arguments",
    [
        "--ctx 12x",
        "--ctx 0",
        "-n -1",
        "--seed 0",
        "--power 101",
        "--temp 101",
        "--top-p 1.5",
        "--backend tpu",
        "--logprobs-top-k 129",
        "--effort none",
    ],
)
def test_bad_values_are_one_line_and_exit_code_2(ds4, arguments):
    code, out, err = ds4("-p", "a", *arguments.split())
    assert (code, out, len(err)) == (2, "", 1)
    assert err[0].startswith("ds4: -")
    assert arguments.split()[0] in err[0]


def test_other_spellings_work(ds4):
    code, out, _ = ds4(
        "-p", "--metal", "--temperature=0", "--power-percent", "90", "--nothink", turns=[turn("x")]
    )
    assert (code, out) == (0, "x\n")


def test_settings_come_from_the_environment(ds4, monkeypatch):
    monkeypatch.setenv("DS4_EFFORT", "low")
    monkeypatch.setenv("DS4_TOKENS", "1")
    code, out, err = ds4("-p", "a", turns=[turn(*"xyz")])
    assert (code, out) == (0, "x\n")
    assert "thinking on, effort low, effort profile official" in err


def test_a_prompt_larger_than_the_context(ds4):
    code, out, err = ds4("-p", "x" * 3000)
    assert (code, out) == (1, "")
    assert err[-1].startswith("ds4: the prompt has ")
    assert err[-1].endswith("raise --ctx or shorten the prompt")


def test_exact_tokens_and_a_rendered_transcript(ds4, tmp_path):
    (tmp_path / "ids.json").write_text("[256, 104, 105]")
    assert ds4("--prompt-tokens", "ids.json", "--trace", "trace")[0] == 0
    assert json.loads((tmp_path / "trace").read_text())["prompt_tokens"] == [256, 104, 105]
    rendered = "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>"
    assert ds4("-p", rendered, "--nothink", "--trace", "trace")[1] == "A.\nB\n"
    assert json.loads((tmp_path / "trace").read_text())["prompt"] == rendered


def test_dumps_of_a_prompt(ds4, tmp_path):
    spread = {"logits": {"a": 2.0, "b": 1.0}}
    words = ["-p", "hi", "--dump-logits", "l.json", "--dump-logprobs", "p.json", "-n", "2"]
    code, out, _ = ds4(*words, turns=[turn(spread, spread)])
    assert (code, out) == (0, "")
    logits, logprobs = (json.loads((tmp_path / name).read_text()) for name in ("l.json", "p.json"))
    assert logits["argmax_token"]["text"] == "a"
    assert len(logprobs["steps"]) == 2
    assert (logprobs["top_k"], logprobs["ctx"]) == (20, 2000)


def test_a_dump_that_cannot_be_written_is_refused_before_the_engine_opens(ds4):
    assert ds4("-p", "hi", "--dump-logits", "/none/such") == (
        2,
        "",
        ["ds4: cannot write /none/such: there is no such folder"],
    )


def test_dump_tokens_matches_the_golden_dump(capsysbinary):
    text = golden_json("prompts.json")["short"]["text"]
    assert cli.main(["--dump-tokens", "-m", str(tiny_q2()), "-p", text]) == 0
    assert capsysbinary.readouterr().out == (GOLDEN / "cli-dump-tokens.txt").read_bytes()


def test_inspect_prints_the_summary(capsys):
    assert cli.main(["--inspect", "-m", str(tiny_q2())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "vocabulary: 1280" in lines
    assert "effort_profile: preview" in lines


def test_inspect_lists_every_mismatch_and_other_runs_say_so(capsys, tmp_path):
    content = tiny_q2().read_bytes()
    for name in (b"blk.0.attn_q_a.weight", b"blk.3.ffn_norm.weight"):
        content = content.replace(name, name.upper())
    (tmp_path / "x.gguf").write_bytes(content)
    assert cli.main(["--inspect", "-m", f"{tmp_path}/x.gguf"]) == 1
    first, second, last = capsys.readouterr().err.splitlines()
    assert first == "tensor 'blk.0.attn_q_a.weight' is missing"
    assert second == "tensor 'blk.3.ffn_norm.weight' is missing"
    assert last.endswith("(and 1 more problem)")
    assert cli.main(["-p", "a", "-m", f"{tmp_path}/x.gguf"]) == 1
    (only,) = capsys.readouterr().err.splitlines()
    assert only.endswith("(and 1 more problem); `ds4 --inspect -m FILE` lists all")


def test_perplexity_prints_one_line(ds4, tmp_path):
    even = {"logits": {"a": 1.0, "b": 1.0}}
    (tmp_path / "text").write_text("a" * 40)
    code, out, _ = ds4("--perplexity-file", "text", turns=[turn(*[even] * 20)])
    assert code == 0
    assert out == "tokens=40 scored=8 nll=5.545177444 avg_nll=0.693147181 ppl=2.000000000\n"


def test_an_empty_text_is_refused_before_the_model_is_opened(ds4, tmp_path):
    (tmp_path / "text").write_text("")
    code, out, err = ds4("--perplexity-file", "text")
    assert (code, out) == (2, "")
    assert err == ["ds4: --perplexity-file text is empty: there is nothing to score"]


def test_ctrl_c_in_a_one_shot_run_exits_130_without_a_traceback(tmp_path):
    script = script_file(tmp_path, turn(*"abcdef" * 50, piece_delay_s=0.05))
    arguments = [sys.executable, "-m", "apps.cli", "--script", str(script), "-p", "hi", "--nothink"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, cwd=GOLDEN.parents[1], **pipes) as process:
        assert process.stdout.read(2) == b"ab"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert b"Traceback" not in err
    assert err.splitlines()[-1] == b"ds4: cancelled"


def test_a_folder_without_a_name_is_refused(ds4):
    code, _, err = ds4("--kv-disk-dir", "")
    assert code == 2
    assert err == ["ds4: --kv-disk-dir needs the name of a folder: leave it out for the usual one"]
