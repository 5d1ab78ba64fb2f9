"""The frontier sweep on the scripted engine, with a clock of our own."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.bench.prompt import PromptSource
from apps.bench.sweep import CSV_HEADER, SweepSettings, sweep
from apps.cli import main
from shared.errors import UsageError
from shared.kv.payload import payload_size
from shared.model.reference_engine import load as load_reference
from shared.sampling import GREEDY, Sampling
from shared.session import Picked
from shared.text import marks
from tests.support.golden import golden_json, tiny_q2


@pytest.mark.parametrize(
    ("settings", "frontiers"),
    [
        (SweepSettings(2048, 8192, 2048), [2048, 4096, 6144, 8192]),
        (SweepSettings(2048, 7000, 2048), [2048, 4096, 6144, 7000]),
        (SweepSettings(10, 100, 1, 2.0), [10, 20, 40, 80, 100]),
        (SweepSettings(1, 5, 1, 1.01), [1, 2, 3, 4, 5]),
        (SweepSettings(64, 64), [64]),
    ],
)
def test_frontiers(settings: SweepSettings, frontiers: list[int]) -> None:
    assert list(settings.frontiers()) == frontiers


@given(
    st.integers(1, 5000),
    st.integers(0, 5000),
    st.integers(1, 3000),
    st.floats(1, 4, exclude_min=True) | st.just(1.0),
)
def test_frontiers_ascend_to_the_maximum(start: int, more: int, increment: int, factor: float) -> None:
    frontiers = list(SweepSettings(start, start + more, increment, factor).frontiers())
    assert frontiers[0] == start
    assert frontiers[-1] == start + more
    assert all(left < right for left, right in pairwise(frontiers))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (SweepSettings(10, 9), "--ctx-start 10 must lie between 1 and --ctx-max 9"),
        (SweepSettings(0, 9), "--ctx-start 0"),
        (SweepSettings(1, 9, 0), "--step-incr"),
        (SweepSettings(1, 9, 1, 0.5), "--step-mul"),
        (SweepSettings(1, 9, 1, float("nan")), "--step-mul"),
        (SweepSettings(generate=-1), "--gen-tokens"),
    ],
)
def test_contradictory_settings_name_the_flag(settings: SweepSettings, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        settings.check()


def test_a_sweep_measures_only_the_new_interval_and_restores_the_frontier() -> None:
    engine = load_reference(tiny_q2())
    session = engine.open_session(256)
    ticks = iter(range(1000))
    tokens = golden_json("prompts.json")["medium"]["ids"]
    seen: list[tuple[int, int, list[int]]] = []
    rows = list(
        sweep(
            session,
            tokens,
            SweepSettings(40, 100, 60, generate=3),
            end_token=engine.tokenizer.specials.eos,
            vocabulary_size=engine.shape.vocabulary_size,
            power=engine.power,
            at_frontier=lambda frontier, new: seen.append((frontier, new, session.tokens)),
            clock=lambda: float(next(ticks)),
        )
    )
    # The clock advances by one at every look: each interval lasts a second.
    sizes = [payload_size(engine.shape, frontier, 256) for frontier in (40, 100)]
    assert [row.values() for row in rows] == [
        [40, 40, 40.0, 3, 3.0, sizes[0]],
        [100, 60, 60.0, 3, 3.0, sizes[1]],
    ]
    assert all(len(row.generated) == 3 for row in rows)
    assert seen == [(40, 40, tokens[:40]), (100, 60, tokens[:100])]
    assert session.tokens == tokens[:100]


def test_the_end_token_is_masked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load_reference(tiny_q2())
    session = engine.open_session(64)
    end = engine.tokenizer.specials.eos
    masks: list[npt.NDArray[np.bool_]] = []
    pick = session.pick

    def watched(
        sampling: Sampling, uniform: float = 0.0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> Picked:
        assert sampling == GREEDY
        assert allowed is not None
        masks.append(allowed)
        return pick(sampling, uniform, allowed)

    monkeypatch.setattr(session, "pick", watched)
    settings = SweepSettings(8, 8, generate=2)
    tokens = golden_json("prompts.json")["short"]["ids"]
    size = engine.shape.vocabulary_size
    rows = sweep(session, tokens, settings, end_token=end, vocabulary_size=size, power=engine.power)
    assert len(list(rows)) == 1
    assert len(masks) == 2
    assert all(np.flatnonzero(~mask).tolist() == [end] for mask in masks)


def test_rows_go_to_a_csv_file(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [{"pieces": ["ab"], "eos": False}]}))
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("x" * 64)
    output = tmp_path / "sweep.csv"
    arguments = f"bench --backend scripted --script {script} --prompt-file {prompt} --csv {output} -n 4"
    assert main([*arguments.split(), "--ctx-start", "32", "--ctx-max", "64", "--step-incr", "32"]) == 0
    lines = output.read_text().splitlines()
    assert lines[0] == CSV_HEADER
    assert CSV_HEADER == "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes"
    assert [line.split(",")[:2] for line in lines[1:]] == [["32", "32"], ["64", "32"]]
    assert all(line.count(",") == CSV_HEADER.count(",") for line in lines)


def test_the_trace_tells_what_was_prefilled_and_generated(tmp_path: Path) -> None:
    prompt, trace = tmp_path / "ids.json", tmp_path / "trace"
    ids = golden_json("prompts.json")["short"]["ids"]
    prompt.write_text(json.dumps(ids))
    arguments = (
        f"bench -m {tiny_q2()} --backend reference --prompt-tokens {prompt} -n 3 --trace {trace} "
        f"--ctx-start 16 --ctx-max 27 --step-incr 16 --csv {tmp_path / 'rows'}"
    )
    assert main(arguments.split()) == 0
    first, *rows = map(json.loads, trace.read_text().splitlines())
    assert first == {"event": "prompt", "prompt_tokens": ids}
    assert [(row["event"], row["ctx_tokens"], len(row["generated"])) for row in rows] == [
        ("frontier", 16, 3),
        ("frontier", 27, 3),
    ]
    session = load_reference(tiny_q2()).open_session(64)
    session.sync(ids[:27])
    assert session.pick(GREEDY).value() == rows[1]["generated"][0]


def test_json_output_and_frontier_logits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = tmp_path / "ids.json"
    prompt.write_text(json.dumps(golden_json("prompts.json")["short"]["ids"]))
    arguments = (
        f"bench -m {tiny_q2()} --backend reference --prompt-tokens {prompt} --json --gen-tokens 0 "
        f"--ctx-start 16 --ctx-max 27 --step-incr 16 --dump-frontier-logits-dir {tmp_path}"
    )
    assert main(arguments.split()) == 0
    record = json.loads(capsys.readouterr().out)
    assert [row["ctx_tokens"] for row in record["rows"]] == [16, 27]
    assert all(row["kvcache_bytes"] == 0 and row["gen_tps"] == 0 for row in record["rows"])
    dump = json.loads((tmp_path / "frontier_000027.logits.json").read_text())
    assert dump["prefill_tokens"] == 11
    assert len(dump["logits"]) == dump["vocab"] == 1280
    assert dump["logits"][dump["argmax_id"]] == dump["argmax_logit"] == max(dump["logits"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "give exactly one of --prompt-file"),
        ("--prompt-file a --chat-prompt-file b", "give exactly one of --prompt-file"),
        ("--prompt-file /nonexistent/x --ctx-max 5 --ctx-start 1", "cannot read /nonexistent/x"),
        ("--prompt-file x --ctx-alloc 10", "--ctx-alloc must exceed"),
        ("--prompt-file x --csv /nonexistent/y", "cannot write /nonexistent/y: there is no such folder"),
        ("--prompt-file x --csv /", "cannot write /: it is a folder"),
        ("--prompt-file x --dump-frontier-logits-dir /nonexistent/y", "no such folder"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "-m", str(tiny_q2()), "--backend", "reference", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


def test_a_short_prompt_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = tmp_path / "short.txt"
    prompt.write_text("too short")
    assert main(f"bench -m {tiny_q2()} --backend reference --prompt-file {prompt}".split()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(
        r"ds4: the prompt has ([0-9]+) tokens but --ctx-max is 32768: give a longer one, or --ctx-max \1",
        said,
    )


def test_a_prompt_file_is_raw_text(tmp_path: Path) -> None:
    prompt = tmp_path / "marks.txt"
    prompt.write_text(f"a {marks.EOS} b")
    engine = load_reference(tiny_q2())
    source = PromptSource(prompt, "text")
    tokens = source.encode(source.read(), engine, "")
    assert engine.tokenizer.specials.eos not in tokens
    assert engine.tokenizer.decode(tokens) == prompt.read_bytes()
