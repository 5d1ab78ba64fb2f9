"""A checkpoint that is not of the model: every fault is found before a byte is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shared.errors import ModelFileError
from shared.gguf.types import ValueType
from shared.gguf.writer import ArrayValue, write_gguf
from shared.quantise.header import read_template
from shared.quantise.imatrix import ImatrixError, read_imatrix
from shared.quantise.plan import PlannedTensor, check_imatrix, make_plan
from shared.quantise.recipe import Recipe
from shared.quantise.safetensors import Checkpoint, CheckpointError
from tests.support.model_files import metadata_of
from tests.support.tiny_checkpoints import SHAPE, TinyCheckpoint, write_imatrix


def plan_of(folder: Path, tiny: TinyCheckpoint, recipe: str = "mxfp4") -> list[PlannedTensor]:
    with Checkpoint.open(tiny.write(folder, files=1)) as checkpoint:
        return make_plan(checkpoint, tiny.shape, Recipe(recipe))


@pytest.fixture(scope="module")
def tiny() -> TinyCheckpoint:
    return TinyCheckpoint()


def f32(*shape: int) -> tuple[str, np.ndarray, tuple[int, ...]]:
    return ("F32", np.zeros(shape, "<f4"), shape)


@pytest.mark.parametrize(
    ("name", "stored", "reason"),
    [
        ("layers.1.attn.wkv.weight", None, r"tensor 'layers.1.attn.wkv' is missing"),
        ("layers.1.ffn.experts.1.w3.weight", None, r"'layers.1.ffn.experts.1.w3' is missing"),
        ("layers.1.ffn.experts.1.w3.scale", None, "w3.weight' has no scales"),
        ("norm.weight", f32(255), r"'norm.weight' has the size \[255\], expected \[256\]"),
        ("embed.weight", f32(256, 320), r"'embed.weight' has the size \[256, 320\], expected \[320, 256\]"),
        ("layers.0.ffn.gate.tid2eid", f32(320, 2), r"is F32 \[320, 2\], expected I64 \[320, 2\]"),
        ("layers.0.ffn.experts.0.w1.weight", f32(256, 256), "is F32: only FP4 can become MXFP4"),
    ],
)
def test_faults(tiny: TinyCheckpoint, tmp_path: Path, name: str, stored, reason: str) -> None:
    tiny = tiny.copy()
    tiny.stored.pop(name)
    if stored is not None:
        tiny.stored[name] = stored
    with pytest.raises(CheckpointError, match=reason):
        plan_of(tmp_path / "hf", tiny)


def test_several_faults_are_counted(tiny: TinyCheckpoint, tmp_path: Path) -> None:
    tiny = tiny.copy()
    for name in ("norm.weight", "head.weight", "hc_head_fn"):
        tiny.stored.pop(name)
    with pytest.raises(CheckpointError, match=r"'hc_head_fn' is missing \(and 2 more problems\)"):
        plan_of(tmp_path / "hf", tiny)


def test_what_may_be_absent_or_superfluous(tiny: TinyCheckpoint, tmp_path: Path) -> None:
    tiny = tiny.copy()
    tiny.stored.pop("layers.2.ffn.gate.bias")
    tiny.stored["mtp.0.norm.weight"] = f32(3)
    names = [tensor.name for tensor in plan_of(tmp_path / "hf", tiny)]
    assert set(tiny.floats) - set(names) == {"blk.2.exp_probs_b.bias"}


def test_float_experts_can_be_quantised(tiny: TinyCheckpoint, tmp_path: Path) -> None:
    tiny = tiny.copy()
    tiny.stored.pop("layers.0.ffn.experts.0.w1.scale")
    tiny.stored["layers.0.ffn.experts.0.w1.weight"] = f32(256, 256)
    assert len(plan_of(tmp_path / "hf", tiny, "q2")) == len(tiny.floats)


def test_an_imatrix_of_another_model(tiny: TinyCheckpoint, tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "hf", tiny, "q2")
    held = read_imatrix(write_imatrix(tmp_path / "i.dat", {"blk.77.x": np.ones(4)}))
    with pytest.raises(ImatrixError, match="says nothing about the tensors"):
        check_imatrix(plan, held)
    held = read_imatrix(write_imatrix(tmp_path / "i.dat", {"blk.0.ffn_up_exps.weight": np.ones(4)}))
    with pytest.raises(ImatrixError, match=r"has 4 values .*, expected 512"):
        check_imatrix(plan, held)


def test_templates(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    kept = metadata_of(SHAPE)
    notes = [
        ("quantize.imatrix.file", ValueType.STRING, "old.dat"),
        ("general.file_type", ValueType.UINT32, 10),
        ("flags", ValueType.ARRAY, ArrayValue(ValueType.BOOL, [True, False])),
    ]
    write_gguf(path, [*kept, *notes], [])
    template = read_template(path)
    assert template.shape == SHAPE
    assert [entry[0] for entry in template.metadata] == [entry[0] for entry in [*kept, notes[-1]]]
    write_gguf(path, kept[:5], [])
    with pytest.raises(ModelFileError, match="required key"):
        read_template(path)
    nested = ArrayValue(ValueType.ARRAY, [ArrayValue(ValueType.UINT8, [1])])
    write_gguf(path, [*kept, ("nested", ValueType.ARRAY, nested)], [])
    with pytest.raises(ModelFileError, match="arrays of arrays"):
        read_template(path)
