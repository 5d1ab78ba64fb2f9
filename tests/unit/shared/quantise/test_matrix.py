"""The entrance to the quantisers: what it takes, what it refuses, and that importance matters."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import quants

from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.quant.dequantise import dequantise
from shared.quantise.matrix import WEIGHTED_TYPES, column_energy, quantise

ORACLES = {
    TensorType.Q2_K: quants.Q2_K,
    TensorType.Q4_K: quants.Q4_K,
    TensorType.IQ2_XXS: quants.IQ2_XXS,
    TensorType.Q8_0: quants.Q8_0,
}
# Relative root mean square errors on normally distributed weights.
EXPECTED = {
    TensorType.Q8_0: 0.008,
    TensorType.Q4_K: 0.08,
    TensorType.Q2_K: 0.32,
    TensorType.IQ2_XXS: 0.46,
}


def normal(rows: int, columns: int = 512, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32) * np.float32(0.02)


@pytest.mark.parametrize("type", EXPECTED)
def test_both_readers_see_the_weights_again(type: TensorType) -> None:
    values = normal(6)
    data = quantise(type, values)
    assert data.shape == (6, 512 // block_elements(type) * block_bytes(type))
    ours = dequantise(type, data.reshape(-1), values.shape)
    if type is TensorType.IQ2_XXS:
        quants.IQ2_XXS.init_grid()
    theirs = ORACLES[type].dequantize_blocks(data.reshape(-1, block_bytes(type))).reshape(values.shape)
    np.testing.assert_array_equal(ours, theirs)
    relative = np.sqrt(np.mean(np.square(ours - values)) / np.mean(np.square(values)))
    assert relative < EXPECTED[type]


@pytest.mark.parametrize("type", WEIGHTED_TYPES)
def test_important_columns_come_out_better(type: TensorType) -> None:
    values = normal(8)
    importance = np.where(np.arange(512) % 5 == 0, 30, 0.1).astype(np.float32)
    plain, guided = (
        np.square(dequantise(type, quantise(type, values, given).reshape(-1), values.shape) - values)
        for given in (np.ones(512, np.float32), importance)
    )
    assert (guided * importance).sum() < 0.8 * (plain * importance).sum()


@pytest.mark.parametrize("type", WEIGHTED_TYPES)
def test_only_ratios_of_importances_count(type: TensorType) -> None:
    values, importance = normal(4), np.random.default_rng(0).random(512).astype(np.float32)
    expected = quantise(type, values, importance)
    np.testing.assert_array_equal(quantise(type, values, importance * np.float32(2.0**90)), expected)


@pytest.mark.parametrize("type", WEIGHTED_TYPES)
def test_rows_do_not_influence_each_other(type: TensorType) -> None:
    values, importance = normal(20), np.random.default_rng(0).random(512).astype(np.float32)
    whole = quantise(type, values, importance)
    np.testing.assert_array_equal(quantise(type, values[3:7], importance), whole[3:7])


@pytest.mark.parametrize("type", WEIGHTED_TYPES)
@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e5, 1e30])
def test_sizes_beyond_binary16_give_finite_weights(type: TensorType, scale: float) -> None:
    values = normal(2) * np.float32(scale)
    read = dequantise(type, quantise(type, values).reshape(-1), values.shape)
    assert np.isfinite(read).all()
    assert np.abs(read).max() <= 1.3 * np.abs(values).max() + 1e-6


@pytest.mark.parametrize("type", WEIGHTED_TYPES)
def test_columns_that_never_mattered_do_no_harm(type: TensorType) -> None:
    values = normal(2)
    for importance in (np.zeros(512, np.float32), np.eye(1, 512, 7, dtype=np.float32)[0]):
        read = dequantise(type, quantise(type, values, importance).reshape(-1), values.shape)
        assert np.sqrt(np.mean(np.square(read - values)) / np.mean(np.square(values))) < 0.6


def test_without_importance_iq2_xxs_takes_the_energy_of_columns() -> None:
    values = normal(9) * np.linspace(0.1, 4, 512, dtype=np.float32)
    expected = quantise(TensorType.IQ2_XXS, values, column_energy(values))
    np.testing.assert_array_equal(quantise(TensorType.IQ2_XXS, values), expected)
    assert np.allclose(column_energy(values), np.square(values).sum(axis=0), rtol=1e-5)
    assert np.isfinite(column_energy(values * np.float32(1e22))).all()


@pytest.mark.parametrize("type", WEIGHTED_TYPES)
def test_a_check_between_pieces_can_end_the_work(type: TensorType) -> None:
    calls = []

    def check() -> None:
        calls.append(type)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantise(type, np.ones((300, 256), np.float32), check=check)
    assert len(calls) == 2


def test_plain_types_are_stored_as_they_are() -> None:
    values = normal(2, 32)
    np.testing.assert_array_equal(quantise(TensorType.F32, values).view("<f4"), values)
    np.testing.assert_array_equal(quantise(TensorType.F16, values).view("<f2"), values.astype(np.float16))


def test_q8_0_rounds_halves_away_from_zero() -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :5] = [127, 0.5, -0.5, 2.5, 0.49999997]
    assert quantise(TensorType.Q8_0, values)[0, 2:7].view(np.int8).tolist() == [127, 1, -1, 3, 0]


@pytest.mark.parametrize(
    ("type", "values", "importance", "reason"),
    [
        (TensorType.Q4_K, np.full((1, 256), np.nan, np.float32), None, "not finite"),
        (TensorType.F16, np.full((1, 4), 7e4, np.float32), None, "beyond 65504"),
        (TensorType.Q4_K, np.ones((1, 128), np.float32), None, "not a multiple of 256"),
        (TensorType.Q6_K, np.ones((1, 256), np.float32), None, "cannot be written as Q6_K"),
        (TensorType.Q4_K, np.ones((1, 256), np.float32), np.ones(255, np.float32), "255 importances"),
        (TensorType.Q2_K, np.ones((1, 256), np.float32), -np.ones(256, np.float32), "negative"),
    ],
)
def test_refusals(type, values, importance, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        quantise(type, values, importance)
