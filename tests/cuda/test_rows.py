"""Rows that attention keeps, and the compressed rows of finished windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import attention_rows, compress
from ds4cuda.operations import compressor_columns
from shared.kv.payload import NO_SCORE
from shared.model.frontier import frontier_slots, frontier_widths
from shared.model.known_shapes import FLASH
from shared.model.reference_math import pool, rms, rotate
from shared.model.rope import rope_tables, rotary_frequencies
from shared.quant.rounding import hadamard128, round_f16, round_fp4, round_fp8_row
from tests.cuda.arrays import Array, assert_close, halves, numbers

SHAPE = replace(FLASH, head_dim=192, query_rank=80, index_heads=3)
SETTINGS: dict[str, Any] = {"head_dim": 192, "rotary_dim": 64, "epsilon": 1e-6}


def row_buffer(rounds: bool, *shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint16 if rounds else np.float32)


def widened(rows: np.ndarray) -> Array:
    return rows if rows.dtype == np.float32 else rows.view(np.float16).astype(np.float32)


def assert_rows(found: np.ndarray, expected: Array, rounds: bool) -> None:
    """Rounded rows may differ by a step of E4M3 where the number before rounding lies at an edge."""
    if not rounds:
        assert_close(found, expected, 5e-6)
        return
    values, rounded = widened(found), round_f16(round_fp8_row(expected, 64))
    equal = np.isclose(values, rounded, rtol=1e-3, atol=1e-7)
    assert equal.mean() > 0.995
    np.testing.assert_allclose(values, rounded, rtol=0.13, atol=2e-3)


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize(("ratio", "start", "count"), [(0, 6, 3), (4, 3, 1), (128, 126, 4)])
def test_rows_of_tokens(device: Device, rounds: bool, ratio: int, start: int, count: int) -> None:
    random = np.random.default_rng(ratio + count)
    width, columns = sum(frontier_widths(SHAPE, ratio)), compressor_columns(SHAPE, ratio)
    low, projected = numbers(random, count, 80 + 192), numbers(random, count, max(1, columns))
    query_norm, row_norm = numbers(random, 80), numbers(random, 192)
    positional = halves(numbers(random, max(1, ratio), max(1, width)))
    turns = np.stack(rope_tables(SHAPE, ratio, np.arange(start, start + count)), axis=-1)
    latent, ring = np.zeros((count, 80), np.float32), row_buffer(rounds, 7, 192)
    frontier = np.zeros((count, max(1, width)), np.float32)
    frontier_ring = np.zeros((max(1, frontier_slots(ratio)), max(1, width)), np.float32)
    call = attention_rows.build(
        device, query_rank=80, ratio=ratio, frontier=width, compressor=columns, rounds=rounds, **SETTINGS
    )
    position = np.array([start], np.int32)
    arrays = (positional, turns, position, latent, ring, frontier, frontier_ring)
    call(low, projected, query_norm, row_norm, *arrays)
    assert_close(latent, rms(low[:, :80], 1e-6) * query_norm)
    rows = rotate(rms(low[:, 80:], 1e-6) * row_norm, turns[..., 0], turns[..., 1])
    slots = np.arange(start, start + count) % 7
    assert_rows(ring[slots], rows, rounds)
    assert not np.delete(ring, slots, axis=0).any()
    if ratio:
        places = np.arange(start, start + count) % ratio
        expected = projected[:, :width] + positional.view(np.float16).astype(np.float32)[places]
        assert_close(frontier, expected)
    if ratio and count == 1:
        assert_close(frontier_ring[start % 8], expected[0])
    else:
        assert not frontier_ring.any()


def expected_rows(frontier: Array, first: int, windows: range, ratio: int) -> list[tuple[Array, Array]]:
    """Attention and index rows before rounding; `frontier` rows are those of positions from `first` on."""
    rows, halves_each = [], 2 if ratio == 4 else 1
    for window in windows:
        made, column = [], 0
        for width in (192, 128)[: 2 if ratio == 4 else 1]:
            kv, score = np.split(frontier[:, column : column + 2 * halves_each * width], 2, axis=1)
            own = slice(window * ratio - first, (window + 1) * ratio - first)
            values, scores = kv[own], score[own]
            if ratio == 4:
                values, scores = values[:, width:], scores[:, width:]
                if window:
                    before = slice(own.start - 4, own.start)
                    values = np.concatenate([kv[before][:, :width], values])
                    scores = np.concatenate([score[before][:, :width], scores])
            made.append(pool(values[None], scores[None])[0])
            column += 2 * halves_each * width
        rows.append((made[0], made[-1]))
    return rows


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize(
    ("ratio", "start", "count"), [(4, 0, 3), (4, 0, 9), (4, 7, 1), (4, 9, 11), (128, 127, 1), (128, 100, 160)]
)
def test_windows_that_end(device: Device, rounds: bool, ratio: int, start: int, count: int) -> None:
    random = np.random.default_rng(start + count)
    width, slots = sum(frontier_widths(SHAPE, ratio)), frontier_slots(ratio)
    first = max(0, start - slots)
    frontier = numbers(random, start + count - first, width)
    own_scores = 3 * 192 if ratio == 4 else 192
    if ratio == 128:
        frontier[:, own_scores + 7] = NO_SCORE  # a channel without scores
        frontier[:, own_scores + 8] = NO_SCORE / 2
    for channel, loud in ((5, 0), (6, ratio - 1)):  # one token outweighs all others of its window
        frontier[-(first - loud) % ratio :: ratio, own_scores + channel] = 200
    ring = np.full((slots, width), np.nan, np.float32)
    for position in range(first, start):
        ring[position % slots] = frontier[position - first]
    own = frontier[start - first :].copy()
    if count == 1:
        ring[start % slots] = own[0]
    norm, index_norm = numbers(random, 192), numbers(random, 128)
    rows = row_buffer(rounds, 80, 192)
    index_rows = np.zeros((80, 128), np.float32)
    call = compress.build(device, ratio=ratio, frontier=width, rounds=rounds, **SETTINGS)
    begins, frequencies = np.array([start], np.int32), rotary_frequencies(SHAPE, ratio)
    call(own, ring, norm, index_norm, frequencies, begins, rows, index_rows)
    windows = range(start // ratio, (start + count) // ratio)
    untouched = np.delete(np.arange(80), np.array(windows, int))
    assert not rows[untouched].any()
    assert not index_rows[untouched].any()
    for window, (row, index_row) in zip(windows, expected_rows(frontier, first, windows, ratio), strict=True):
        turns = rope_tables(SHAPE, ratio, [window * ratio])
        assert_rows(rows[window], rotate(rms(row[None], 1e-6) * norm, *turns)[0], rounds)
        if ratio == 4:
            vector = rotate(rms(index_row[None], 1e-6) * index_norm, *turns)[0]
            assert_index_vector(index_rows[window], vector, rounds)
    if count > 1:
        for position in range(max(start, start + count - slots), start + count):
            assert np.array_equal(ring[position % slots], frontier[position - first])


def assert_index_vector(found: Array, expected: Array, rounds: bool) -> None:
    if not rounds:
        assert_close(found, expected, 5e-6)
        return
    rounded = round_fp4(hadamard128(expected[None]))[0]
    assert np.isclose(found, rounded, rtol=1e-5, atol=1e-7).mean() >= 126 / 128
