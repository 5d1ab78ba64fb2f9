from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels import index_scores
from ds4mlx.kernels.index_scores import INDEX_DIM, RATIO
from ds4mlx.kernels.kernel import Maker
from tests.kernels.offsets import check_row_offset

Array = npt.NDArray[np.float32]
Score = index_scores.IndexScores


@dataclass(frozen=True, slots=True)
class _Inputs:
    queries: Array
    compressor: Array
    index_rows: Array
    start: int
    rows: int

    @property
    def visible(self) -> npt.NDArray[np.bool_]:
        """Which rows are complete at each token."""
        ends = np.arange(self.start + 1, self.start + len(self.queries) + 1)
        seen: npt.NDArray[np.bool_] = np.arange(self.rows) < ends[:, None] // RATIO
        return seen

    def through(self, score: Score) -> Array:
        numbers = [self.start, len(self.queries), 7, self.rows, 0, 0, 0, 0]
        queries, compressor, rows = map(mx.array, (self.queries, self.compressor, self.index_rows))
        return np.array(score(queries, compressor, rows, mx.array(numbers, mx.int32), self.rows))

    def exact(self, *, sizes: bool = False) -> npt.NDArray[np.float64]:
        """Scores in float64 as if all rows were visible; `sizes`: of the absolute values of all numbers."""
        heads = self.queries.shape[1]
        factors = self.queries, self.index_rows[: self.rows], self.compressor[:, -heads:]
        queries, rows, weights = (np.abs(part) if sizes else part for part in factors)
        dots = queries.astype(np.float64) @ rows.T.astype(np.float64)
        result: npt.NDArray[np.float64] = np.einsum("thc,th->tc", np.maximum(dots, 0), weights)
        return result


def _drawn(
    tokens: int, heads: int, columns: int, *, start: int, rows: int | None = None, rounded: bool = True
) -> _Inputs:
    """As many rows as the step's end has, in a buffer of just as many. `rounded`: to what half tiles hold."""
    rows = (start + tokens) // RATIO if rows is None else rows
    random = np.random.default_rng([tokens, heads, start, rows])
    queries = random.standard_normal((tokens, heads, INDEX_DIM), np.float32)
    keys = random.standard_normal((rows, INDEX_DIM), np.float32)
    if rounded:
        queries, keys = (part.astype(np.float16).astype(np.float32) for part in (queries, keys))
    return _Inputs(queries, random.standard_normal((tokens, columns), np.float32), keys, start, rows)


def _check(score: Score, inputs: _Inputs) -> None:
    scores, visible = inputs.through(score), inputs.visible
    assert scores.dtype == np.float32
    assert np.all(scores[~visible] == -np.inf)
    terms = INDEX_DIM + inputs.queries.shape[1]
    allowed = 2.0**-24 * terms * inputs.exact(sizes=True)
    assert np.all(np.abs(scores - inputs.exact())[visible] <= allowed[visible])


def _few(maker: Maker, heads: int, columns: int) -> None:
    """Around blocks of 16 rows of a simdgroup and 64 of a threadgroup."""
    score = index_scores.build(maker, index_heads=heads, columns=columns, rounds=True)
    for rows in (1, 15, 17, 63, 64, 66):
        _check(score, _drawn(1, heads, columns, start=RATIO * rows, rounded=False))


def _ends_of_rows(maker: Maker) -> None:
    """A row is seen by the token that completes it, and by none before."""
    score = index_scores.build(maker, index_heads=16, columns=40, rounds=True)
    for start in (60, 61, 62, 63):
        _check(score, _drawn(1, 16, 40, start=start))
        _check(score, _drawn(3, 16, 40, start=start))
        _check(score, _drawn(5, 16, 40, start=start, rows=19))


def _many(maker: Maker, heads: int, columns: int, block: int, *, rounds: bool) -> None:
    """Around blocks of 8 tokens, and of `block` rows of a simdgroup."""
    score = index_scores.build(maker, index_heads=heads, columns=columns, rounds=rounds)
    for tokens, rows in ((8, block - 1), (9, block), (11, 2 * block + 1)):
        start = RATIO * rows - tokens + rows % RATIO
        _check(score, _drawn(tokens, heads, columns, start=start, rounded=rounds))


def _threadgroups(maker: Maker, rows: int, *, rounds: bool) -> None:
    """The first tokens see no row of the last threadgroup, whose `rows` before it others score."""
    score = index_scores.build(maker, index_heads=4, columns=4, rounds=rounds)
    _check(score, _drawn(17, 4, 4, start=RATIO * rows - 9, rounded=rounds))
    _check(score, _drawn(8, 4, 4, start=RATIO * rows - 10, rows=rows + 2, rounded=rounds))


def _from_the_start(maker: Maker) -> None:
    """The first three tokens of all see nothing."""
    score = index_scores.build(maker, index_heads=16, columns=40, rounds=True)
    _check(score, _drawn(10, 16, 40, start=0))


def _stale_rows(maker: Maker) -> None:
    """What a buffer holds behind the rows does not matter."""
    score = index_scores.build(maker, index_heads=16, columns=40, rounds=True)
    for tokens in (1, 8):
        inputs = _drawn(tokens, 16, 40, start=83)
        behind = np.full((50, INDEX_DIM), np.nan, np.float32)
        held = np.concatenate([inputs.index_rows, behind])
        _check(score, _Inputs(inputs.queries, inputs.compressor, held, inputs.start, inputs.rows))


def _same_bits(maker: Maker) -> None:
    """Rounded vectors give exact dot products, so that only the order of the heads counts: it is the same for
    one token and for many, and that of a loop."""
    random = np.random.default_rng(11)
    heads, tokens, start = 20, 9, 131
    rows = (start + tokens) // RATIO
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    levels = np.concatenate([levels, -levels]).astype(np.float32)
    queries, keys = (random.choice(levels, (*part, INDEX_DIM)) for part in ((tokens, heads), (rows,)))
    # Blocks of 32 of different sizes.
    queries *= np.repeat(np.array([0.25, 2.0, 1.0, 0.5], np.float32), 32)
    weights = random.standard_normal((tokens, heads), np.float32)
    score = index_scores.build(maker, index_heads=heads, columns=heads, rounds=True)
    together = _Inputs(queries, weights, keys, start, rows)
    alone = [
        _Inputs(queries[t : t + 1], weights[t : t + 1], keys, start + t, rows).through(score)
        for t in range(tokens)
    ]
    expected = np.zeros((tokens, rows), np.float32)
    for head in range(heads):
        products = np.maximum(queries[:, head] @ keys.T, 0).astype(np.float64)
        # A fused multiply-add: exact in float64 but for its last rounding.
        expected = (expected + products * weights[:, head, None]).astype(np.float32)
    expected[~together.visible] = -np.inf
    np.testing.assert_array_equal(together.through(score), expected)
    np.testing.assert_array_equal(np.concatenate(alone), expected)


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one token, rows around blocks": lambda maker: _few(maker, 16, 40),
    "one token, weights only and heads short of a chunk": lambda maker: _few(maker, 20, 20),
    "rows end at every fourth token": _ends_of_rows,
    "many tokens, half tiles": lambda maker: _many(maker, 16, 40, 32, rounds=True),
    "many tokens, float tiles": lambda maker: _many(maker, 20, 20, 16, rounds=False),
    "two threadgroups, half tiles": lambda maker: _threadgroups(maker, 256, rounds=True),
    "two threadgroups, float tiles": lambda maker: _threadgroups(maker, 128, rounds=False),
    "from the first token": _from_the_start,
    "stale rows": _stale_rows,
    "the same bits for one token and many": _same_bits,
    "rows beyond 2^32 numbers": check_row_offset,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
def test_model_heads(maker: Maker) -> None:
    score = index_scores.build(maker, index_heads=64, columns=2624, rounds=True)
    for tokens in (1, 8):
        _check(score, _drawn(tokens, 64, 2624, start=700))


@pytest.mark.parametrize(("tokens", "start"), [(1, 203), (3, 202), (40, 0), (300, 77)])
def test_fallback(tokens: int, start: int) -> None:
    _check(index_scores.fallback, _drawn(tokens, 16, 40, start=start, rounded=False))


def test_no_place_for_weights(maker: Maker) -> None:
    with pytest.raises(ValueError, match="16 index heads"):
        index_scores.build(maker, index_heads=16, columns=12, rounds=True)
