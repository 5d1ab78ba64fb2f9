"""The indexer: queries, scores, the choice of rows."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import index_queries, index_scores, top_k
from shared.model.known_shapes import FLASH
from shared.model.reference_math import largest_first, rotate
from shared.model.rope import rope_tables
from shared.quant.rounding import hadamard128, round_fp4
from tests.cuda.arrays import Array, assert_close, numbers


@pytest.mark.parametrize("rounds", [True, False])
def test_queries(device: Device, rounds: bool) -> None:
    queries = numbers(np.random.default_rng(0), 3, 3 * 128)
    cosines, sines = rope_tables(FLASH, 4, np.arange(50, 53))
    expected = rotate(queries.reshape(3, 3, 128), cosines, sines)
    if rounds:
        expected = round_fp4(hadamard128(expected))
    call = index_queries.build(device, heads=3, rotary_dim=64, rounds=rounds)
    call(queries, np.stack([cosines, sines], axis=-1))
    found = queries.reshape(3, 3, 128)
    if rounds:  # a number at an edge of E2M1 may go the other way
        assert np.isclose(found, expected, rtol=1e-5, atol=1e-7).mean() >= 0.995
    else:
        assert_close(found, expected)


def test_scores(device: Device) -> None:
    random = np.random.default_rng(1)
    queries, projected = numbers(random, 3, 5 * 128), numbers(random, 3, 20 + 5)
    rows, start, first = numbers(random, 150, 128), 530, 1
    rows[140] = rows[3]
    scores = np.zeros((2, 133), np.float32)
    call = index_scores.build(device, heads=5, frontier=20, compressor=25)
    call(queries, projected, rows, np.array([start], np.int32), scores, first=first)
    match = np.maximum(queries.reshape(3, 5, 128).astype(np.float64) @ rows[:133].T, 0)
    expected = (match * projected[:, 20:, None]).sum(axis=1)[first:] / np.sqrt(128 * 5)
    for token, visible in enumerate([133, 133]):
        assert_close(scores[token, :visible], expected[token, :visible])
    assert np.isneginf(scores[0, (start + first + 1) // 4 :]).all()


def test_rows_that_are_not_there_yet_score_least(device: Device) -> None:
    scores, rows = np.zeros((4, 6), np.float32), np.ones((8, 128), np.float32)
    call = index_scores.build(device, heads=1, frontier=0, compressor=1)
    ones = np.ones((4, 128), np.float32)
    call(ones, ones[:, :1].copy(), rows, np.array([18], np.int32), scores, first=0)
    visible = [(18 + token + 1) // 4 for token in range(4)]
    assert np.isfinite(scores).sum(axis=1).tolist() == visible


def chosen_rows(device: Device, scores: Array, start: int, count: int, first: int = 0) -> np.ndarray:
    tokens = len(scores)
    chosen = np.full((first + tokens + 1, count), -7, np.int32)
    top_k.build(device, count=count)(scores, np.array([start], np.int32), chosen, first=first)
    assert (chosen[:first] == -7).all()
    assert (chosen[first + tokens :] == -7).all()
    return chosen[first : first + tokens]


@pytest.mark.parametrize(("rows", "count"), [(700, 16), (256, 255), (257, 100), (300, 1)])
def test_the_best_rows_ascending(device: Device, rows: int, count: int) -> None:
    random = np.random.default_rng(rows)
    scores = random.integers(-20, 21, (3, rows)).astype(np.float32) / 4  # with many ties
    scores[0, -1] = 6  # the best is the last
    scores[1] = -np.abs(numbers(random, rows))
    scores[2, ::3] = -0.0
    scores[2, 1::3] = 0.0
    found = chosen_rows(device, scores, 4 * rows, count)
    for token in range(3):
        expected = np.sort(largest_first(scores[token : token + 1] + 0.0, count)[0])
        assert np.array_equal(found[token], expected)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (0, [-1, -1, -1, -1]),
        (3, [0, 1, 2, -1]),
        (4, [0, 1, 2, 3]),
        (5, [0, 2, 3, 4]),
        (6, [0, 3, 4, 5]),
    ],
)
def test_few_rows(device: Device, visible: int, expected: list[int]) -> None:
    """Up to as many as are chosen: all; one more: the best of those that are visible."""
    scores = np.array([[3, 1, 2, 9, 9, 4, 99, 99]], np.float32)
    for start in (4 * visible - 1, 4 * visible + 2):
        if start >= 0:
            assert chosen_rows(device, scores, start, 4)[0].tolist() == expected


def test_each_token_sees_its_own_rows(device: Device) -> None:
    """Tokens from the fourth of a step on; the largest score is always the last row's."""
    scores = np.tile(np.arange(8, dtype=np.float32), (5, 1))
    found = chosen_rows(device, scores, 16, 2, first=3)
    assert found.tolist() == [[(16 + token + 1) // 4 - 2, (16 + token + 1) // 4 - 1] for token in range(3, 8)]
