"""From float weights to files: block formats, a model file that the product opens, a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.embedded_model import vocabulary
from bench.embedded_model.blocks import mxfp4, q8_0
from bench.embedded_model.export import export
from bench.embedded_model.model_file import write_model
from bench.embedded_model.shape import SHAPE
from bench.embedded_model.shipped_weights import read_shipped
from shared.gguf.types import TensorType
from shared.model.open import open_model
from shared.model.reference import Reference
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from shared.model.tensors import tensor_table
from shared.quant.dequantise import dequantise

Array = npt.NDArray[np.float32]

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def blocks(seed: int, power: int) -> Array:
    """Blocks of one size with some zeros, ties and outliers among them."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((3, 32), np.float32) * np.float32(2.0**power)
    return np.where(random.random((3, 32)) < 0.2, np.rint(values), values).astype(np.float32)


@given(st.integers(0, 2**32), st.integers(-8, 8))
def test_q8_0_is_within_half_a_step(seed: int, power: int) -> None:
    values = blocks(seed, power)
    back = dequantise(TensorType.Q8_0, q8_0(values).reshape(-1), values.shape)
    largest = np.abs(values).max(axis=1, keepdims=True)
    assert (np.abs(back - values) <= largest * (0.5 / 127 + 2.0**-10) + 1e-5).all()


@given(st.integers(0, 2**32), st.integers(-8, 8))
def test_mxfp4_takes_the_nearest_code(seed: int, power: int) -> None:
    values = blocks(seed, power)
    back = dequantise(TensorType.MXFP4, mxfp4(values).reshape(-1), values.shape)
    largest = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-30)
    step = np.exp2(np.ceil(np.log2(largest / 6).astype(np.float64))).astype(np.float32)
    distance = np.abs(np.abs(values)[..., None] - step[..., None] * FP4).min(axis=-1)
    assert (np.abs(back - values) <= distance + largest * 1e-6).all()


@pytest.fixture(scope="module")
def weights() -> dict[str, npt.NDArray[np.generic]]:
    random = np.random.default_rng(1)
    made: dict[str, npt.NDArray[np.generic]] = {}
    for spec in tensor_table(SHAPE):
        dims = spec.dims[::-1]
        if spec.name.endswith("tid2eid.weight"):
            made[spec.name] = random.integers(0, SHAPE.expert_count, dims)
        else:
            made[spec.name] = random.standard_normal(dims, np.float32) * np.float32(0.05)
    return made


def test_the_product_opens_and_runs_the_file(
    weights: dict[str, npt.NDArray[np.generic]], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, weights, SHAPE)
    assert path.stat().st_size < 12_000_000
    with open_model(path) as file:
        assert file.shape == SHAPE
        assert file.effort_profile == "preview"
        ids = file.tokenizer.encode_text("Note: Zuvuko=47")
        assert ids == vocabulary.tokenizer().encode_text("Note: Zuvuko=47")
        reference = Reference(ReferenceWeights(file.gguf, file.shape), file.shape)
        streams, _ = reference.forward(ids, ReferenceState(file.shape, 64))
        assert np.isfinite(reference.output_head(streams)).all()


def test_training_may_go_on_from_what_ships(
    weights: dict[str, npt.NDArray[np.generic]], tmp_path: Path
) -> None:
    export(weights, SHAPE, tmp_path)
    back = read_shipped(tmp_path, SHAPE)
    assert back.keys() == weights.keys()
    for name, values in weights.items():
        assert back[name].shape == values.shape
        assert back[name].dtype.kind == values.dtype.kind
        error = np.linalg.norm(back[name] - values) / np.linalg.norm(values)
        assert error < (0.13 if name.endswith("_exps.weight") else 0.03), name  # FP4, and FP8 or better
        if values.dtype.kind == "i":
            assert error == 0
