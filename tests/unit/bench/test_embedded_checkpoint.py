"""The embedded model's checkpoint: number formats, scales, layout, and the way from it to a model file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bench.embedded_model.checkpoint_engine import CheckpointWeights
from bench.embedded_model.export import export
from bench.embedded_model.shape import SHAPE
from bench.embedded_model.ship import convert_checkpoint
from bench.embedded_model.stored_formats import bf16, fp4, fp8
from shared.model.open import open_model
from shared.model.reference_weights import ReferenceWeights
from shared.model.tensors import EXPERT_TYPES, tensor_table

Array = npt.NDArray[np.float32]

SMALL = replace(SHAPE, layer_count=2, expert_count=2, hash_layers=1, compress_ratios=(0, 4))
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FP8 = np.array([(8 + m) * 2.0 ** (e - 10) if e else m * 2.0**-9 for e in range(16) for m in range(8)][:127])


def values(rows: int, columns: int, spread: float = 1.0) -> Array:
    """Normal numbers, some a good deal larger."""
    random = np.random.default_rng(rows)
    drawn = random.standard_normal((rows, columns)) * np.exp(spread * random.standard_normal((rows, columns)))
    return drawn.astype(np.float32)


def best(block: Array, steps: npt.NDArray[np.float64]) -> float:
    """The least sum of squared errors with any power of two as the scale."""
    magnitudes = np.abs(block.reshape(-1)).astype(np.float64)
    errors = []
    for power in range(-20, 5):
        scaled = magnitudes / 2.0**power
        nearest = steps[np.abs(scaled[:, None] - steps).argmin(axis=1)]
        errors.append(np.square((nearest - scaled) * 2.0**power).sum())
    return min(errors)


def test_fp4_takes_the_best_scale_of_every_block() -> None:
    given = values(4, 64)
    given[0, :32] = 0
    codes, scales = fp4(given)
    assert (codes.shape, scales.shape) == ((4, 32), (4, 2))
    nibbles = np.stack((codes & 15, codes >> 4), axis=2).reshape(4, 64)
    meant = FP4[nibbles & 7] * np.where(nibbles & 8, -1, 1) * 2.0 ** (scales.repeat(32, axis=1) - 127.0)
    for block in np.ndindex(scales.shape):
        part = np.s_[block[0], 32 * block[1] : 32 * block[1] + 32]
        assert np.square(meant[part] - given[part]).sum() <= best(given[part], FP4) * (1 + 1e-6)


def test_fp8_takes_the_best_scale_of_every_block_and_of_those_at_the_edge() -> None:
    given = values(130, 200, spread=2.0)
    codes, scales = fp8(given)
    assert (codes.shape, scales.shape) == (given.shape, (2, 2))
    wide = (scales.repeat(128, axis=0).repeat(128, axis=1) - 127.0)[:130, :200]
    meant = FP8[codes & 127] * np.where(codes & 128, -1, 1) * 2.0**wide
    for down, across in np.ndindex(scales.shape):
        part = np.s_[128 * down : 128 * down + 128, 128 * across : 128 * across + 128]
        assert np.square(meant[part] - given[part]).sum() <= best(given[part], FP8) * (1 + 1e-6)


def test_bf16_rounds_to_the_nearest_and_ties_to_even() -> None:
    given = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -3.14159], np.float32)
    back = (bf16(given).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(back, np.float32([1, 1, 1 + 2.0**-6, 1 + 2.0**-7, -3.140625]))


@pytest.fixture(scope="module")
def weights() -> dict[str, npt.NDArray[np.generic]]:
    random = np.random.default_rng(1)
    made: dict[str, npt.NDArray[np.generic]] = {}
    for spec in tensor_table(SMALL):
        size = spec.dims[::-1]
        if spec.name.endswith("tid2eid.weight"):
            made[spec.name] = random.permuted(np.tile(np.arange(2), (size[0], 1)), axis=1)
        else:
            made[spec.name] = random.standard_normal(size, np.float32) * np.float32(0.1)
    return made


def test_the_product_reads_what_was_trained(
    weights: dict[str, npt.NDArray[np.generic]], tmp_path: Path
) -> None:
    folder, path = tmp_path / "checkpoint", tmp_path / "model.gguf"
    export(weights, SMALL, folder)
    convert_checkpoint(folder, path, "mxfp4")
    with open_model(path) as file:
        assert file.shape == SMALL
        assert file.effort_profile == "preview"
        assert file.gguf.metadata["deepseek4.context_length"] == 8192
        held = ReferenceWeights(file.gguf, file.shape)
        meant = CheckpointWeights(folder, file.shape)
        assert np.array_equal(
            held.hashed_experts(0, np.arange(2048)), weights["blk.0.ffn_gate_tid2eid.weight"]
        )
        for spec in tensor_table(SMALL):
            if spec.types == EXPERT_TYPES:
                layer, part = int(spec.name.split(".")[1]), spec.name.split("_")[1]
                ours, theirs = held.expert(layer, part, 1), meant.expert(layer, part, 1)
                np.testing.assert_array_equal(ours, theirs)
                assert error(theirs, weights[spec.name][1]) < 0.13, spec.name
            elif not spec.name.endswith("tid2eid.weight"):
                theirs = meant.tensor(spec.name)
                assert error(held.tensor(spec.name), theirs) < 0.01, spec.name
                assert error(theirs, weights[spec.name]) < 0.03, spec.name


def error(found: Array, wanted: npt.NDArray[np.generic]) -> float:
    """Relative root mean square error."""
    return float(np.sqrt(np.square(found - wanted).mean() / np.square(wanted).mean()))


def test_equal_weights_give_equal_files_wherever_they_lie(
    weights: dict[str, npt.NDArray[np.generic]], tmp_path: Path
) -> None:
    contents = []
    for name in ("one", "0731-other"):
        folder = tmp_path / name
        export(dict(reversed(weights.items())), SMALL, folder)
        convert_checkpoint(folder, tmp_path / f"{name}.gguf", "mxfp4")
        files = [*sorted(folder.iterdir()), tmp_path / f"{name}.gguf"]
        contents.append([path.read_bytes() for path in files])
    assert contents[0] == contents[1]
