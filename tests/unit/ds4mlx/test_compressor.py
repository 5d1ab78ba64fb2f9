"""Pooling of windows on constructed scores, against the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from shared.kv.payload import NO_SCORE
from shared.model import reference_math

mx = pytest.importorskip("mlx.core")

from ds4mlx.compressor import pool, windows  # noqa: E402

WIDTH = 6
KV, SCORE = slice(0, WIDTH), slice(WIDTH, 2 * WIDTH)


def window_rows(scores: np.ndarray) -> tuple[np.ndarray, mx.array]:
    """Random values [windows, tokens, width] and frontier rows with them and `scores`."""
    values = np.random.default_rng(3).standard_normal(scores.shape).astype(np.float32)
    return values, mx.array(np.concatenate((values, scores), axis=-1))


def test_a_channel_without_any_score_is_zero() -> None:
    scores = np.random.default_rng(4).standard_normal((3, 8, WIDTH)).astype(np.float32)
    scores[0] = NO_SCORE
    scores[1, :, 2] = NO_SCORE - scores[1, :, 2]
    scores[2, 1:, 4] = NO_SCORE
    values, rows = window_rows(scores)
    pooled = np.array(pool(None, rows, KV, SCORE))
    assert (pooled[0] == 0).all()
    assert pooled[1, 2] == 0
    assert pooled[2, 4] == values[2, 0, 4]
    np.testing.assert_allclose(pooled, reference_math.pool(values, scores), rtol=0, atol=1e-6)


def test_the_first_window_has_no_window_before_it() -> None:
    """Its previous half is the empty frontier, whose values must not weigh in."""
    half = WIDTH // 2
    scores = np.random.default_rng(5).standard_normal((2, 4, WIDTH)).astype(np.float32)
    scores[0] = NO_SCORE
    values, rows = window_rows(scores)
    previous, current = windows(rows.reshape(8, 2 * WIDTH), 4)
    assert previous is not None
    pooled = np.array(pool(previous, current, KV, SCORE))
    expected = reference_math.pool(values[1:, :, half:], scores[1:, :, half:])
    np.testing.assert_allclose(pooled, expected, rtol=0, atol=1e-6)
