"""The indexer's score of each compressed row for each query.

Contract: queries float32 [n, J, 128], compressor float32 [n, C] whose last J columns are the weights of the J
index heads, index rows float32 [capacity, 128] -> scores float32 [n, rows]. The score of row c for token t is
the sum over heads h of max(0, query[t, h] . row[c]) * weight[t, h], and -inf where c >= (start + t + 1) // 4:
that row is not complete yet at the token's position. Without the model's factor 1 / sqrt(J * 128), which
changes no order. `numbers` is the step's int32 [8]: start, n, ring rows, rows, 0, 0, 0, 0; `rows` <= capacity
is its fourth number. Spec: model 4.7.

Sums: a dot product in the order of the device's 8 x 8 products, in float32; then the heads in ascending order
by fused multiply-add. Tolerance, whatever the order: 2^-24 (128 + J) of the score that the absolute values of
all numbers would give. Queries and rows rounded to E2M1 are small multiples of one power of two in each block
of 32, so that their dot products come out exact in any order unless the powers of two blocks lie 2^11 apart.

Threads: a threadgroup scores a block of rows for one or several queries. Each simdgroup loads its own 16 or
32 rows once and keeps them in registers as transposed 8 x 8 tiles. The heads of one query after the other are
brought into threadgroup memory, 16 at a time, and each tile of 8 heads x 8 channels read there is multiplied
with all tiles of rows. The products of 8 heads are laid down in threadgroup memory, where each lane adds up
those of one row. Steps of few tokens take small blocks of rows, so that there are more threadgroups, and
tiles of float32. In steps of more tokens a threadgroup keeps its rows for 8 queries and, where rows and
queries are rounded, takes tiles of half: E2M1 numbers times a power of two are exact in half as long as that
power lies between 2^-23 and 2^13. (Smaller blocks lose at most 2^-25 in each number, larger ones do not
occur.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.kernel import Example, Kernel, Launch, Maker
from ds4mlx.product import multiply

INDEX_DIM = 128
RATIO = 4  # tokens a row
MANY_TOKENS = 8
# Of one block of queries in the fallback: numbers in the array of products, 256 MiB, and queries.
_BLOCK_PRODUCTS = 64 << 20
_LARGEST_BLOCK = 128

KERNEL = Kernel(
    name="index_scores",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("queries", "compressor", "index_rows", "numbers"),
    outputs=("scores",),
    functions=("row_offset.metal",),
)
KERNELS = (KERNEL,)

IndexScores = Callable[[mx.array, mx.array, mx.array, mx.array, int], mx.array]


@dataclass(frozen=True, slots=True)
class _Tiling:
    """What a threadgroup works on: each of its simdgroups has `fragments` times 8 rows."""

    tile: mx.Dtype
    fragments: int
    simdgroups: int
    tokens: int

    @property
    def rows(self) -> int:
        return 8 * self.fragments * self.simdgroups

    def specialise(self, maker: Maker, heads: int, columns: int) -> Launch:
        return KERNEL.specialise(
            maker,
            TILE=self.tile,
            FRAGMENTS=self.fragments,
            SIMDGROUPS=self.simdgroups,
            TOKENS=self.tokens,
            HEADS=heads,
            COLUMNS=columns,
            WIDTH=INDEX_DIM,
            RATIO=RATIO,
        )


# Tiles of rows take 64 registers of a thread in each of these.
_FEW = _Tiling(mx.float32, fragments=2, simdgroups=4, tokens=1)
_MANY = _Tiling(mx.float32, fragments=2, simdgroups=8, tokens=8)
_MANY_ROUNDED = _Tiling(mx.float16, fragments=4, simdgroups=8, tokens=8)


def fallback(
    queries: mx.array, compressor: mx.array, index_rows: mx.array, numbers: mx.array, rows: int
) -> mx.array:
    tokens, heads, _ = queries.shape
    weights = compressor[:, -heads:]
    if tokens == 1:
        return _scores(queries, weights, index_rows[:rows])
    start = int(np.asarray(numbers)[0])
    size = max(1, min(_BLOCK_PRODUCTS // (heads * max(1, rows)), _LARGEST_BLOCK))
    blocks = []
    for first in range(0, tokens, size):
        block = slice(first, min(first + size, tokens))
        visible = (start + np.arange(block.start, block.stop) + 1) // RATIO
        least, most = int(visible[0]), int(visible[-1])
        scores = _scores(queries[block], weights[block], index_rows[:most])
        if least < most:
            scores = mx.where(mx.array(np.arange(most) < visible[:, None]), scores, -mx.inf)
        if most < rows:
            scores = mx.pad(scores, [(0, 0), (0, rows - most)], constant_values=-mx.inf)
        blocks.append(scores)
    return blocks[0] if len(blocks) == 1 else mx.concatenate(blocks, axis=0)


def _scores(queries: mx.array, weights: mx.array, rows: mx.array) -> mx.array:
    """Of rows that all queries see: queries [b, J, 128], weights [b, J], rows [c, 128] -> [b, c]."""
    count, heads, width = queries.shape
    products = multiply(queries.reshape(-1, width), rows.T, count)
    positive = mx.maximum(products, 0.0).reshape(count, heads, -1)
    return (weights[:, None, :] @ positive)[:, 0]


def build(maker: Maker, *, index_heads: int, columns: int, rounds: bool) -> IndexScores:
    """The launching function for compressor projections of `columns` columns, the last `index_heads` of which
    are head weights. `rounds`: queries and rows have been rounded to E2M1.

    Raises ValueError for columns without place for the weights.
    """
    if not 0 < index_heads <= columns:
        raise ValueError(f"{index_heads} index heads have no weights among {columns} columns")
    of_many = _MANY_ROUNDED if rounds else _MANY
    launch_few = _FEW.specialise(maker, index_heads, columns)
    launch_many = of_many.specialise(maker, index_heads, columns)
    few_rows, few_threads = _FEW.rows, 32 * _FEW.simdgroups
    many_rows, many_threads = of_many.rows, 32 * of_many.simdgroups
    few_group, many_group = (few_threads, 1, 1), (many_threads, 1, 1)
    dtypes = (mx.float32,)

    def index_scores(
        queries: mx.array, compressor: mx.array, index_rows: mx.array, numbers: mx.array, rows: int
    ) -> mx.array:
        tokens = queries.shape[0]
        inputs = [queries, compressor, index_rows, numbers]
        if tokens < MANY_TOKENS:
            threads = (-(-rows // few_rows) * few_threads, tokens, 1)
            return launch_few(inputs, ((tokens, rows),), dtypes, threads, few_group)[0]
        threads = (-(-rows // many_rows) * many_threads, -(-tokens // of_many.tokens), 1)
        return launch_many(inputs, ((tokens, rows),), dtypes, threads, many_group)[0]

    return index_scores


def examples() -> Iterator[Example]:
    random = np.random.default_rng(3)
    heads, columns = 8, 20
    for tokens, start, rounds in ((1, 299, True), (10, 290, True), (10, 290, False)):
        rows = (start + tokens) // RATIO
        # Halves of small integers: like rounded numbers exact in half, and with exact dot products.
        queries, keys = (
            mx.array(random.integers(-12, 13, shape).astype(np.float32) / 2)
            for shape in ((tokens, heads, INDEX_DIM), (rows + 3, INDEX_DIM))
        )
        compressor = mx.array(random.standard_normal((tokens, columns), np.float32))
        numbers = mx.array([start, tokens, 0, rows, 0, 0, 0, 0], mx.int32)
        yield Example(
            f"{tokens} queries, {'half' if rounds and tokens > 1 else 'float'} tiles",
            partial(build, index_heads=heads, columns=columns, rounds=rounds),
            fallback,
            (queries, compressor, keys, numbers, rows),
            1e-5,
        )
