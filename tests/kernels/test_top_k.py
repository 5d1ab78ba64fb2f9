from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels import top_k
from ds4mlx.kernels.kernel import Maker
from tests.kernels.offsets import check_row_offset

Array = npt.NDArray[np.float32]


def _expected(scores: Array, count: int) -> npt.NDArray[np.int64]:
    """By a stable sort, which leaves equal scores in the order of their rows."""
    best_first: npt.NDArray[np.int64] = np.argsort(-scores, axis=1, kind="stable")
    return np.sort(best_first[:, :count], axis=1)


def _check(select: top_k.TopK, scores: Array, count: int) -> None:
    chosen = select(mx.array(scores), count)
    assert chosen.dtype == mx.int32
    np.testing.assert_array_equal(np.array(chosen), _expected(scores, count))


def _random(queries: int, rows: int) -> Array:
    return np.random.default_rng(rows).standard_normal((queries, rows), np.float32)


def _tied(queries: int, rows: int) -> Array:
    """Of few distinct scores, so that every choice ends among equals."""
    return np.random.default_rng(rows).integers(-3, 3, (queries, rows)).astype(np.float32)


def _neighbours(queries: int, rows: int, bit: int, sign: int = 1) -> Array:
    """Scores whose bits, as numbers, lie 2^bit apart."""
    random = np.random.default_rng(bit)
    steps = np.stack([random.permutation(rows) for _ in range(queries)]).astype(np.uint32)
    return np.float32(sign) * (np.uint32(0x3F7FF000) + (steps << np.uint32(bit))).view(np.float32)


def _around(select: top_k.TopK, sizes: tuple[int, ...], queries: int, count: int) -> None:
    rising = np.arange(max(sizes), dtype=np.float32)
    for rows in sizes:
        _check(select, _random(queries, rows), count)
        _check(select, _tied(queries, rows), count)
        _check(select, np.repeat(rising[None, :rows], queries, axis=0), count)


def _every_digit(select: top_k.TopK, queries: int) -> None:
    for bit in (0, 3, 6, 9, 10, 13, 15):
        for sign in (1, -1):
            _check(select, _neighbours(queries, 200, bit, sign), 7)


def _extremes(select: top_k.TopK, queries: int) -> None:
    bounds = np.finfo(np.float32)
    values = np.array(
        [np.inf, bounds.max, 1.0, bounds.smallest_normal, bounds.smallest_subnormal, 0.0], np.float32
    )
    both = np.concatenate([values, -values])
    scores = np.stack([np.random.default_rng(number).permutation(both) for number in range(queries)])
    for count in range(1, 13):
        _check(select, scores, count)


def _zeros(select: top_k.TopK, queries: int) -> None:
    """Both zeros are equal."""
    scores = np.random.default_rng(5).choice(np.array([0.0, -0.0, -1.0], np.float32), (queries, 60))
    scores[:, 0] = -0.0
    _check(select, scores, 9)


def _unseen(select: top_k.TopK, queries: int, rows: int, count: int) -> None:
    """Fewer rows than wanted have a score: the lowest of the others follow."""
    scores = _random(queries, rows)
    scores[:, 3:] = -np.inf
    scores[0] = -np.inf
    _check(select, scores, count)


def _in_order(select: top_k.TopK, queries: int, rows: int, count: int) -> None:
    """All of the best rows in one share, the first, the last or one between them."""
    falling = np.arange(rows, 0, -1, dtype=np.float32)
    for scores in (falling, falling[::-1], np.roll(falling, rows // 2), np.ones(rows, np.float32)):
        _check(select, np.repeat(scores[None], queries, axis=0), count)


_SHARE = 16 * top_k.SHARE

# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one query, few rows": lambda maker: _around(top_k.build(maker), (16, 31, 33), 1, 16),
    "one query, rows around a threadgroup": lambda maker: _around(
        top_k.build(maker), (1023, 1024, 1025, 2049), 1, 80
    ),
    "one query, every digit decides": lambda maker: _every_digit(top_k.build(maker), 1),
    "one query, extreme scores": lambda maker: _extremes(top_k.build(maker), 1),
    "one query, both zeros": lambda maker: _zeros(top_k.build(maker), 1),
    "one query, unseen rows": lambda maker: _unseen(top_k.build(maker), 1, 90, 16),
    "one query, rows around two shares": lambda maker: _around(
        top_k.build(maker), (2 * _SHARE - 1, 2 * _SHARE, 2 * _SHARE + 1, 3 * _SHARE + 2), 1, 16
    ),
    "one query, ordered shares": lambda maker: _in_order(top_k.build(maker), 1, 3 * _SHARE + 2, 16),
    "two queries, unseen shares": lambda maker: _unseen(top_k.build(maker), 2, 2 * _SHARE + 5, 16),
    "two queries, shares": lambda maker: _around(top_k.build(maker), (2 * _SHARE + 1,), 2, 16),
    "one query, shares larger than a threadgroup": lambda maker: _around(top_k.build(maker), (2600,), 1, 80),
    "as few scores as come in another address space": lambda maker: _around(
        top_k.build(maker), (3, 7, 8), 1, 3
    ),
    "nine queries, rows around a threadgroup": lambda maker: _around(
        top_k.build(maker), (16, 31, 255, 257, 520), 9, 16
    ),
    "nine queries, every digit decides": lambda maker: _every_digit(top_k.build(maker), 9),
    "nine queries, extreme scores": lambda maker: _extremes(top_k.build(maker), 9),
    "nine queries, unseen rows": lambda maker: _unseen(top_k.build(maker), 9, 90, 16),
    "rows beyond 2^32 numbers": check_row_offset,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
def test_models_rows(maker: Maker) -> None:
    """As many rows and as large a count as a model has."""
    select = top_k.build(maker)
    _check(select, np.round(_random(1, 40_000), 2), 512)
    _check(select, np.round(_random(8, 5_000), 2), 1024)


@pytest.mark.parametrize("rows", [16, 17, 700])
def test_fallback(rows: int) -> None:
    for scores in (_random(3, rows), _tied(3, rows)):
        chosen = top_k.fallback(mx.array(scores), 16)
        assert chosen.dtype == mx.int32
        np.testing.assert_array_equal(np.array(chosen), _expected(scores, 16))
