"""Sums of squares by expert: against plain loops, in any batches, and experts that nobody chose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.quantise import imatrix_sums
from shared.quantise.imatrix import ImatrixError, write_imatrix
from shared.quantise.imatrix_sums import ImportanceSums, NotFinite
from tests.support.model_files import SMALL

SHAPE = replace(SMALL, layer_count=2, embedding_width=6, expert_width=4, expert_count=5)


def _seen(random: np.random.Generator, tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inputs = random.standard_normal((tokens, 6)).astype(np.float32)
    chosen = random.integers(0, 4, (tokens, 3))  # the last expert is never named, some are named twice
    return inputs, chosen, random.standard_normal((tokens, 3, 4)).astype(np.float32)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_means_over_the_slots_that_chose_an_expert(seed: int, batches: list[int]) -> None:
    random = np.random.default_rng(seed)
    sums = ImportanceSums(SHAPE)
    rows: dict[tuple[int, int], list[tuple[np.ndarray, np.ndarray]]] = {}
    for tokens in batches:
        for layer in range(2):
            inputs, chosen, hidden = _seen(random, tokens)
            sums(layer, inputs, chosen, hidden)
            for token, slot in np.ndindex(chosen.shape):
                pair = (inputs[token].astype(np.float64), hidden[token, slot].astype(np.float64))
                rows.setdefault((layer, int(chosen[token, slot])), []).append(pair)
    assert sums.batches == 2 * len(batches)
    assert sums.unseen == 10 - len(rows)
    entries = dict(sums.entries())
    assert list(entries) == sums.names
    assert {name: values.size for name, values in entries.items()} == dict(sums.sizes())
    for layer in range(2):
        gate, up, down = (entries[f"blk.{layer}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        np.testing.assert_array_equal(gate, up)
        for expert in range(5):
            pairs = rows.get((layer, expert), [(np.ones(6), np.ones(4))])
            for found, side in ((gate.reshape(5, 6), 0), (down.reshape(5, 4), 1)):
                expected = sum(pair[side] ** 2 for pair in pairs) / len(pairs)
                np.testing.assert_allclose(found[expert], expected, rtol=1e-6)


def test_a_long_step_is_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = ImportanceSums(SHAPE), ImportanceSums(SHAPE)
    seen = _seen(np.random.default_rng(1), 23)
    whole(1, *seen)
    monkeypatch.setattr(imatrix_sums, "_BLOCK", 5)
    parts(1, *seen)
    for (name, found), (_, expected) in zip(parts.entries(), whole.entries(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
    assert parts.batches == whole.batches == 1


def test_small_squares_are_not_lost_behind_large_ones() -> None:
    sums = ImportanceSums(SHAPE)
    loud, quiet = np.full((1, 6), 1e4, np.float32), np.full((1, 6), 1e-1, np.float32)
    hidden, chosen = np.ones((1, 1, 4), np.float32), np.zeros((1, 1), np.int64)
    sums(0, loud, chosen, hidden)
    for _ in range(1000):
        sums(0, quiet, chosen, hidden)
    expected = (1e8 + 1000 * float(np.float32(0.1)) ** 2) / 1001
    assert sums._inputs[0, 0, 0] / 1001 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_finite_is_told_at_once(value: float, side: int) -> None:
    both = np.ones((1, 6), np.float32), np.ones((1, 1, 4), np.float32)
    both[side][0, ..., 2] = value
    with pytest.raises(NotFinite, match=r"went through expert 3 of layer 1"):
        ImportanceSums(SHAPE)(1, both[0], np.full((1, 1), 3), both[1])


def test_means_beyond_single_precision_reach_no_file(tmp_path: Path) -> None:
    sums = ImportanceSums(SHAPE)
    sums(0, np.full((1, 6), 3e38, np.float32), np.zeros((1, 1), np.int64), np.ones((1, 1, 4), np.float32))
    with pytest.raises(ImatrixError, match=r"importances of .* are negative or not finite"):
        write_imatrix(tmp_path / "i.dat", sums.entries(), 6, dataset="", chunks=1)
    assert not list(tmp_path.iterdir())
