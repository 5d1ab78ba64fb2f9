"""`ds4 imatrix` from its command line: what it collects, on which engines, and everything that is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apps import cli
from apps.quantize.listing import size_text
from shared.gguf.reader import GgufFile
from shared.model.open import open_model
from shared.model.reference import Reference
from shared.model.reference_engine import load
from shared.quant.dequantise import dequantise
from shared.quantise.imatrix import read_imatrix
from tests.support.golden import tiny_q2
from tests.support.scripts import script_file, turn
from tests.support.tiny_checkpoints import TinyCheckpoint

PROMPTS = ("The sky is blue.", "The sky is blue, the sea is deep.")
Entries = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dataset") / "prompts.txt"
    path.write_text(
        "".join(f"===== DS4_IMATRIX_PROMPT {n} =====\n{text}\n" for n, text in enumerate(PROMPTS))
    )
    return path


def _run(dataset: Path, out: Path, *arguments: object, model: Path | None = None) -> int:
    files = ["--dataset", dataset, "--out", out, "-m", model or tiny_q2()]
    return cli.main(["imatrix", *map(str, files), *map(str, arguments)])


def _collected(dataset: Path, out: Path, *arguments: object) -> Entries:
    assert _run(dataset, out, "--ctx", "64", *arguments) == 0
    return read_imatrix(out).entries


@pytest.fixture(scope="module")
def of_reference(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Entries:
    return _collected(dataset, tmp_path_factory.mktemp("file") / "i.dat", "--backend", "reference")


def _expected(monkeypatch: pytest.MonkeyPatch) -> Entries:
    """The same sums token by token, from what the router gets and gives and from the file's own weights."""
    routed: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
    route = Reference.route

    def spy(self: Reference, layer: int, hidden: Any, tokens: Any) -> Any:
        chosen, shares = route(self, layer, hidden, tokens)
        routed.append((layer, hidden[0].astype(np.float64), chosen[0], shares[0].astype(np.float64)))
        return chosen, shares

    monkeypatch.setattr(Reference, "route", spy)
    engine = load(tiny_q2())
    for prompt in PROMPTS:
        session = engine.open_session(64)
        first, *others = engine.tokenizer.encode_rendered(prompt)
        session.sync([first])
        for token in others:
            session.submit(token)
    sums: dict[tuple[str, int], np.ndarray] = {}
    counts: dict[tuple[int, int], int] = {}
    shape, clamp = engine.shape, engine.shape.swiglu_clamp
    engine.close()
    with GgufFile.open(tiny_q2()) as file:

        def weights(layer: int, part: str) -> np.ndarray:
            info = file.tensors[f"blk.{layer}.ffn_{part}_exps.weight"]
            return dequantise(info.type, file.data(info.name), info.dims[::-1]).astype(np.float64)

        matrices = {
            layer: (weights(layer, "gate"), weights(layer, "up")) for layer in range(shape.layer_count)
        }
    for layer, hidden, chosen, shares in routed:
        for expert, share in zip(chosen.tolist(), shares, strict=True):
            gate, up = (matrix[expert] @ hidden for matrix in matrices[layer])
            gate, up = np.minimum(gate, clamp), np.clip(up, -clamp, clamp)
            row = gate / (1 + np.exp(-gate)) * up * share
            counts[layer, expert] = counts.get((layer, expert), 0) + 1
            for part, values in (("gate", hidden), ("up", hidden), ("down", row)):
                key = f"blk.{layer}.ffn_{part}_exps.weight", expert
                sums[key] = sums.get(key, 0.0) + values**2
    entries: Entries = {}
    for layer in range(shape.layer_count):
        for part in ("gate", "up", "down"):
            name = f"blk.{layer}.ffn_{part}_exps.weight"
            experts = range(shape.expert_count)
            means = [sums[name, e] / counts[layer, e] if (name, e) in sums else np.ones(256) for e in experts]
            entries[name] = np.concatenate(means)
    return entries


def _compare(found: Entries, expected: Entries, tolerance: float) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        off = np.abs(found[name] - values).max() / np.abs(values).max()
        assert off <= tolerance, (name, off)


def test_it_sums_what_each_token_shows_its_experts(
    of_reference: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(of_reference, _expected(monkeypatch), 1e-4)


def test_token_by_token_it_is_the_same(dataset: Path, tmp_path: Path, of_reference: Entries) -> None:
    arguments = ("--backend", "reference", "--prefill-chunk", "1")
    _compare(_collected(dataset, tmp_path / "i.dat", *arguments), of_reference, 1e-4)


def test_mlx_collects_the_same(dataset: Path, tmp_path: Path, of_reference: Entries) -> None:
    pytest.importorskip("mlx.core")
    arguments = ("--backend", "mlx", "--prefill-chunk", "5")
    _compare(_collected(dataset, tmp_path / "i.dat", *arguments), of_reference, 1e-3)


def test_what_it_says(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "i.dat"
    assert _run(dataset, out, "--backend", "reference", "--ctx", "12", "--max-prompts", "1", "--json") == 0
    printed = capsys.readouterr()
    record = json.loads(printed.out)
    assert record.pop("seconds") >= 0
    engine = load(tiny_q2())
    tokens = len(engine.tokenizer.encode_rendered(PROMPTS[0]))
    assert record == {
        "file": str(out),
        "bytes": out.stat().st_size,
        "model": engine.name,
        "backend": "reference",
        "prompts": 1,
        "tokens": min(tokens, 11),
        "cut_prompts": int(tokens > 11),
        "batches": 6,
        "experts": 48,
        "unseen_experts": record["unseen_experts"],
    }
    held = read_imatrix(out)
    assert (held.dataset, held.chunks) == (str(dataset), 6)
    assert f"read 1/1 prompts, {record['tokens']} tokens" in printed.err
    ones = sum(
        bool((values.reshape(8, -1)[expert] == 1).all())
        for name, values in held.entries.items()
        if "down" in name
        for expert in range(8)
    )
    assert record["unseen_experts"] == ones
    options = ("--backend", "reference", "--ctx", "12", "--max-tokens", "3", "--overwrite")
    assert _run(dataset, out, *options) == 0
    line, size = capsys.readouterr().out, size_text(out.stat().st_size)
    assert line.startswith(f"{out}: {size}, 1 prompts (1 cut), 3 tokens, ")
    assert " of 48 experts unseen, " in line


def test_quantising_with_it_makes_another_file(tmp_path: Path, dataset: Path) -> None:
    """A checkpoint without loss, importances collected from it, and the four-bit file that they change."""
    tiny = TinyCheckpoint()
    tiny.write_config(tiny.write(tmp_path / "hf"))
    source = ["quantize", "--hf", str(tmp_path / "hf"), "--recipe", "mxfp4", "--out"]
    whole, plain, guided = (tmp_path / name for name in ("whole.gguf", "plain.gguf", "guided.gguf"))
    assert cli.main([*source, str(whole)]) == 0
    backend = ("--ctx", "64", "--backend", "reference")
    assert _run(dataset, tmp_path / "i.dat", *backend, model=whole) == 0
    four = [f"--tensor-type=blk.1.ffn_{part}_exps=q4_k" for part in ("gate", "up", "down")]
    importances = ["--imatrix", str(tmp_path / "i.dat"), "--imatrix-strict"]
    assert cli.main([*source, str(plain), *four]) == 0
    assert cli.main([*source, str(guided), *four, *importances]) == 0
    with open_model(plain) as before, open_model(guided) as after:
        assert after.gguf.metadata["quantize.imatrix.dataset"] == str(dataset)
        assert after.gguf.metadata["quantize.imatrix.entries_count"] == 9
        old, new = before.gguf, after.gguf
        differing = {name for name in old.tensors if (old.data(name) != new.data(name)).any()}
    assert differing == {f"blk.1.ffn_{part}_exps.weight" for part in ("gate", "up", "down")}


def test_an_interrupt_writes_nothing(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.chat.interrupt.Interrupt.__call__", lambda self: True)
    assert _run(dataset, tmp_path / "i.dat", "--backend", "reference", "--ctx", "32") == 130
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("\nds4: stopped: nothing was written\n")


def test_a_full_disk_is_told_before_the_work(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert _run(dataset, tmp_path / "i.dat", "--backend", "reference", "--ctx", "32") == 1
    assert re.search(r"i\.dat takes 148\.\d KB but the disk has 1\.0 KB free\n$", capsys.readouterr().err)


def test_an_existing_file_is_only_replaced_when_told(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "i.dat").write_text("mine")
    assert _run(dataset, tmp_path / "i.dat") == 2
    assert "i.dat exists: name another file, or replace it with --overwrite" in capsys.readouterr().err
    copy = tmp_path / "copy.txt"
    shutil.copy(dataset, copy)
    for out in (copy, tiny_q2()):
        assert _run(copy, out, "--overwrite") == 2
        assert f"cannot write {out}: it is what is to be read" in capsys.readouterr().err
    assert (tmp_path / "i.dat").read_text() == "mine"


def test_a_backend_without_experts_says_so(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ["--backend", "scripted", "--script", str(script_file(tmp_path, turn("a")))]
    assert _run(dataset, tmp_path / "i.dat", *script) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "ds4: the scripted backend has no experts to collect from: name another one"
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--dataset", "gone.txt"], "cannot read the dataset gone.txt: No such file or directory"),
        (["--dataset", "empty.txt"], "the dataset empty.txt holds no prompt"),
        (["--out", "no/i.dat"], "cannot write no/i.dat: there is no such folder"),
        (["--ctx", "1"], "--ctx must be at least 2, not 1"),
        (["--max-tokens", "0"], "--max-tokens"),
        (["--max-prompts", "0"], "--max-prompts"),
    ],
)
def test_bad_input_is_one_clear_line(
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    assert _run(dataset, tmp_path / "i.dat", "--backend", "reference", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("ds4: ")
    assert reason in printed.err
    assert printed.err.count("\n") == 1


def test_a_watched_session_leaves_its_engine_as_it_is() -> None:
    """It computes the same, and sessions opened normally show nothing."""
    engine, shown = load(tiny_q2()), list[int]()
    tokens = engine.tokenizer.encode_rendered(PROMPTS[0])[:5]
    watched = engine.open_watched_session(32, lambda layer, *of: shown.append(layer))
    session = engine.open_session(32)
    watched.sync(tokens)
    session.sync(tokens)
    assert shown == list(range(6))
    np.testing.assert_array_equal(session.logits(), watched.logits())
