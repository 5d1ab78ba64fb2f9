"""Scores of compressed rows for many tokens on tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import tile_index_scores
from shared.quant.rounding import round_fp4
from tests.cuda.arrays import assert_close, numbers


@pytest.mark.parametrize(
    ("heads", "tokens", "rows", "start", "first"),
    [(5, 2, 133, 529, 1), (16, 17, 9, 20, 0), (20, 3, 300, 1196, 2)],
    ids=["few heads", "tokens of two blocks", "rows of two blocks"],
)
def test_scores(device: Device, heads: int, tokens: int, rows: int, start: int, first: int) -> None:
    """The last row is not there yet for the first tokens; two rows are equal."""
    random = np.random.default_rng(heads)
    count = first + tokens
    queries = round_fp4(numbers(random, count, heads, 128)).reshape(count, -1)
    held = round_fp4(numbers(random, rows + 3, 128))
    held[rows - 2] = held[0]
    projected = numbers(random, count, 20 + heads)
    scores = np.zeros((tokens, rows), np.float32)
    call = tile_index_scores.build(device, heads=heads, frontier=20, compressor=20 + heads)
    call(queries, projected, held, np.array([start], np.int32), scores, first=first)
    match = np.maximum(queries.reshape(count, heads, 128).astype(np.float64) @ held[:rows].T, 0)
    expected = (match * projected[:, 20:, None]).sum(axis=1)[first:] / np.sqrt(128 * heads)
    visible = np.arange(rows) < (start + first + np.arange(tokens)[:, None] + 1) // 4
    assert not visible.all()
    assert np.array_equal(np.isneginf(scores), ~visible)
    both = visible[:, rows - 2]
    assert both.any()
    assert np.array_equal(scores[both, rows - 2], scores[both, 0])
    assert_close(np.where(visible, scores, 0), np.where(visible, expected, 0))
