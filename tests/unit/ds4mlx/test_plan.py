"""What the plan says before loading is what the loaded model holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.model.known_shapes import FLASH
from shared.model.open import open_model
from tests.support.golden import model_path
from tests.support.model_files import MXFP4, SMALL, metadata_of, tensors_of, write_hollow

mx = pytest.importorskip("mlx.core")

from ds4mlx.adoption import TensorBytes  # noqa: E402
from ds4mlx.experts import Mxfp4Experts  # noqa: E402
from ds4mlx.plan import Storage, planner, weight_bytes  # noqa: E402
from ds4mlx.weights import WeightReader  # noqa: E402
from tests.support.mlx_models import engine  # noqa: E402


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("expand_experts", [False, True])
@pytest.mark.parametrize("name", ["tiny-q2", "tiny-q4", "tiny-pro-q2"])
def test_weights_take_what_was_planned(name: str, packed: bool, expand_experts: bool) -> None:
    with open_model(model_path(name)) as model:
        storage = Storage(packed, expand_experts, model.shape.streams)
        source = TensorBytes(model.gguf, adopt=False, notes=[])
        weights = WeightReader(model.gguf, model.shape, source, storage).read()
        assert weights.nbytes == weight_bytes(model, storage)


def test_the_plan_of_a_file_is_that_of_the_engine() -> None:
    with open_model(model_path("tiny-q2")) as model:
        planned = planner(model)(2048)
    assert planned == engine().memory_plan(2048)


def test_a_gpu_pays_for_the_repacked_matrices(tmp_path: Path) -> None:
    path = tmp_path / "flash.gguf"
    write_hollow(path, metadata_of(FLASH), tensors_of(FLASH))
    with open_model(path) as model:
        grown = weight_bytes(model, Storage.for_gpu(model.shape)) - model.weight_bytes
        planned = planner(model, gpu=True)(32768)
        here = planner(model)(32768)
    # 40 bytes for 34: the Q8_0 matrices of Flash take 1.1 GiB more than in the file.
    assert 1.0 < grown / 2**30 < 1.15
    assert planned.weights == grown + model.weight_bytes
    if mx.default_device() == mx.Device(mx.cpu):
        # Matrices in float32 are four times as large: no plan for a Mac.
        assert here.weights > planned.weights + 15 * 2**30


def test_repacked_mxfp4_experts_take_what_they_take_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    write_hollow(path, metadata_of(SMALL), tensors_of(SMALL, lambda layer: MXFP4))
    with open_model(path) as model:
        storage = Storage.for_gpu(model.shape)
        source = TensorBytes(model.gguf, adopt=False, notes=[])
        weights = WeightReader(model.gguf, model.shape, source, storage).read()
        assert isinstance(weights.layers[0].experts, Mxfp4Experts)
        assert weights.nbytes == weight_bytes(model, storage)


def test_the_plan_for_a_gpu_needs_no_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_model(model_path("tiny-q2")) as model:
        expected = weight_bytes(model, Storage(True, False, model.shape.streams))
        monkeypatch.setitem(sys.modules, "mlx.core", None)
        assert planner(model, gpu=True)(2048).weights == expected
