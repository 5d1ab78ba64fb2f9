"""`ds4 quantize` from the command line to the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from apps.cli import main
from apps.quantize.listing import size_text
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType
from shared.model.open import open_model
from tests.support.tiny_checkpoints import TinyCheckpoint, write_imatrix


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny = TinyCheckpoint()
    tiny.write_config(tiny.write(folder / "hf"))
    tiny.write_template(folder / "template.gguf")
    return folder


@pytest.fixture
def quantize(folder: Path, tmp_path: Path):
    def run(*arguments: str, out: Path = tmp_path / "m.gguf") -> int:
        source = ["--hf", str(folder / "hf")]
        return main(["quantize", *source, "--out", str(out), *arguments])

    return run


def test_it_writes_a_model_file_and_says_so(quantize, tmp_path: Path, capsys) -> None:
    assert quantize("--recipe", "mxfp4", "-t", "1") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{tmp_path / 'm.gguf'}: 3.7 MB, 92 tensors, ")
    assert printed.err == ""
    with open_model(tmp_path / "m.gguf") as file:
        assert file.gguf.tensors["blk.1.ffn_up_exps.weight"].type is TensorType.MXFP4
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("m.")] == ["m.gguf"]


def test_a_template_gives_the_metadata(quantize, folder: Path, tmp_path: Path) -> None:
    assert quantize("--recipe", "mxfp4", "--template", str(folder / "template.gguf")) == 0
    with GgufFile.open(tmp_path / "m.gguf") as file:
        assert file.metadata["general.name"] == "tiny"
        assert file.metadata["tokenizer.ggml.tokens"][7] == "word7"


def test_recipes_layers_and_overrides_reach_the_file(quantize, tmp_path: Path, capsys) -> None:
    mxfp4 = [
        f"--tensor-type=blk.{layer}.ffn_{part}_exps=mxfp4"
        for layer in (0, 2)
        for part in ("gate", "up", "down")
    ]
    assert quantize("--recipe", "q2-q4", "--q4-layers", "1", *mxfp4, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record.pop("seconds") >= 0
    out = tmp_path / "m.gguf"
    assert record == {"file": str(out), "bytes": out.stat().st_size, "tensors": 92, "resumed": 0}
    with GgufFile.open(out) as file:
        types = [file.tensors[f"blk.{layer}.ffn_down_exps.weight"].type.name for layer in range(3)]
    assert types == ["MXFP4", "Q4_K", "MXFP4"]


def test_a_dry_run_prints_the_plan_and_writes_nothing(quantize, tmp_path: Path, capsys) -> None:
    assert quantize("--dry-run") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "ffn_gate_exps.weight 0-2 256 x 256 x 2 FP4 -> IQ2_XXS 101.4 KB" in lines
    assert "attn_q_a.weight 0-2 256 x 96 F8_E4M3 -> Q8_0 78.3 KB" in lines
    assert "token_embd.weight 256 x 320 BF16 -> F16 163.8 KB" in lines
    assert "IQ2_XXS 6 tensors 202.8 KB" in lines
    assert lines[-1] == "92 tensors, 3.5 MB in all, without importances"
    assert not list(tmp_path.glob("m.*"))


def test_a_dry_run_for_programs(quantize, tmp_path: Path, capsys) -> None:
    assert quantize("--dry-run", "--json", "--recipe", "q4") == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["tensors"]) == 92
    assert plan["imatrix"] is None
    by_name = {tensor["name"]: tensor for tensor in plan["tensors"]}
    expected = {"from": "FP4", "type": "Q4_K", "dims": [256, 256, 2], "bytes": 2 * 256 * 144}
    name = "blk.2.ffn_down_exps.weight"
    assert by_name[name] == {"name": name, **expected}
    assert quantize("--recipe", "mxfp4") == 0
    capsys.readouterr()
    assert quantize("--dry-run", "--json", "--recipe", "mxfp4") == 0, (
        "a file that exists is no reason not to plan"
    )
    assert json.loads(capsys.readouterr().out)["bytes"] == (tmp_path / "m.gguf").stat().st_size


def test_an_existing_file_is_only_replaced_when_told(quantize, tmp_path: Path, capsys) -> None:
    (tmp_path / "m.gguf").write_text("mine")
    assert quantize("--recipe", "mxfp4") == 2
    assert "exists: name another file, or replace it with --overwrite" in capsys.readouterr().err
    assert (tmp_path / "m.gguf").read_text() == "mine"
    assert quantize("--recipe", "mxfp4", "--overwrite") == 0
    assert (tmp_path / "m.gguf").stat().st_size > 1e6


def test_an_imatrix_is_checked_and_used(quantize, tmp_path: Path, capsys) -> None:
    entries = {f"blk.{layer}.ffn_up_exps.weight": np.ones(512) for layer in range(3)}
    path = write_imatrix(tmp_path / "i.dat", entries)
    arguments = ["--recipe", "mxfp4", "--tensor-type", "blk.1.ffn_gate_exps=q4_k"]
    arguments += ["--tensor-type", "blk.1.ffn_up_exps=q4_k", "--tensor-type", "blk.1.ffn_down_exps=q4_k"]
    assert quantize(*arguments, "--imatrix", str(path), "--imatrix-strict") == 1
    lack = "the importances lack 2 expert tensors, first blk.1.ffn_gate_exps.weight"
    assert capsys.readouterr().err == f"ds4: {lack}\n"
    assert quantize(*arguments, "--imatrix", str(path)) == 0
    assert f"{lack}: those are made without" in capsys.readouterr().err
    with GgufFile.open(tmp_path / "m.gguf") as file:
        assert file.metadata["quantize.imatrix.entries_count"] == 3


def test_a_full_disk_is_told_before_the_work(quantize, tmp_path: Path, capsys, monkeypatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 28)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert quantize("--recipe", "mxfp4") == 1
    error = capsys.readouterr().err
    assert error.endswith("3.7 MB to write, 268.4 MB free (some is kept in reserve)\n")
    assert not list(tmp_path.glob("m.*"))


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--recipe", "q3"], 2, "no recipe 'q3': there are q2, q4, q2-q4, mxfp4"),
        (["--recipe", "q3", "--hf", "absent"], 2, "no recipe 'q3': there are q2, q4, q2-q4, mxfp4"),
        (["--q4-layers", "1", "--hf", "absent"], 2, "only the recipe q2-q4 has layers to choose"),
        (["--recipe", "q2-q4", "--q4-layers", "x"], 2, "'x' names no layers"),
        (["--tensor-type", "blk.0"], 2, "is not PREFIX=TYPE"),
        (["--hf", "absent"], 1, "absent is no folder"),
        (["--hf", "tests"], 1, "tests holds no safetensors files"),
        (["--template", "absent.gguf"], 1, "there is no model file 'absent.gguf'"),
        (["--imatrix", "absent.dat"], 1, "cannot read the importance file absent.dat: No such file"),
        (["--imatrix", "tests"], 1, "cannot read the importance file tests: Is a directory"),
        (["--imatrix", __file__], 1, "no file of importances, or damaged"),
        (["--out", "absent/m.gguf"], 2, "there is no such folder"),
        (["--threads", "0"], 2, "--threads"),
    ],
)
def test_bad_input_is_one_clear_line(quantize, capsys, arguments: list[str], code: int, reason: str) -> None:
    assert quantize(*arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("ds4: ")
    assert reason in printed.err
    assert printed.err.count("\n") == 1


def test_sizes() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 81.34e9)] == ["0 B", "999 B", "1.0 KB", "81.3 GB"]
