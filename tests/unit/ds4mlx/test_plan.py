"""What the plan says before loading is what the loaded model holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shared.model.known_shapes import FLASH
from shared.model.open import open_model
from shared.model.shape import ModelShape
from tests.support.golden import model_path
from tests.support.model_files import metadata_of, tensors_of, write_hollow

pytest.importorskip("mlx.core")

from ds4mlx.adoption import TensorBytes
from ds4mlx.plan import Storage, plan, weight_bytes
from ds4mlx.weights import WeightReader
from tests.support.mlx_models import engine


def repeated_scales(shape: ModelShape) -> int:
    """Bytes of the mix scales beyond one number each: loading repeats them to one number an output."""
    return 4 * (2 * shape.layer_count * (shape.mix_width - 3) + shape.streams - 1)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("expand_experts", [False, True])
@pytest.mark.parametrize("name", ["tiny-q2", "tiny-q4", "tiny-pro-q2"])
def test_weights_take_what_was_planned(name: str, packed: bool, expand_experts: bool) -> None:
    storage = Storage(packed=packed, expand_experts=expand_experts)
    with open_model(model_path(name)) as model:
        source = TensorBytes(model.gguf, adopt=False, notes=[])
        weights = WeightReader(model.gguf, model.shape, source, storage).read()
        assert weights.nbytes == weight_bytes(model, storage) + repeated_scales(model.shape)


def test_the_plan_of_a_file_is_that_of_the_engine() -> None:
    with open_model(model_path("tiny-q2")) as model:
        planned = plan(model, 2048)
    whole = engine()
    held = whole.memory_plan(2048)
    assert replace(planned, weights=held.weights) == held
    assert held.weights - planned.weights == repeated_scales(whole.shape)


def test_a_gpu_pays_for_the_repacked_matrices_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "flash.gguf"
    write_hollow(path, metadata_of(FLASH), tensors_of(FLASH))
    with open_model(path) as model:
        grown = weight_bytes(model, Storage(packed=True, expand_experts=False)) - model.weight_bytes
    # 40 bytes for 34: the Q8_0 matrices of Flash take 1.1 GiB more than in the file.
    assert 1.0 < grown / 2**30 < 1.2
