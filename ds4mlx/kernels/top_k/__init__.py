"""Numbers of the rows with the largest scores, ascending; of equal scores the lower row wins.

Contract: scores float32 [n, rows], count <= rows -> int32 [n, count]. Exact: the chosen rows are those of the
`count` first pairs (score descending, row ascending). -0 equals +0, -inf is a score like any other and never
NaN is given. No floating-point operation is done, so results do not depend on the device. Spec: model 4.7.

A radix select. Scores become unsigned ranks, the smallest for the largest score, and the rank of the row that
is the last to be taken is found in three digits of 11 bits: a threadgroup counts, in threadgroup memory, how
often each digit occurs among the ranks that begin like the one sought, and sums the counts up to the place
where `count` is reached. Then each simdgroup counts the rows of its own stretch that are better than that
rank or tie with it, and writes the chosen ones behind those of the stretches before it. So scores are read
five times, by neighbouring lanes at neighbouring addresses.

Threads: one threadgroup a query. A step of few tokens with many rows would leave most of the device idle:
there, each of several threadgroups chooses among an equal share of a query's rows, and a second launch
chooses among what they have chosen. Ascending lists one after the other are ascending, so that ties are
decided as they would have been at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.kernel import CONSTANT_SPACE_BELOW, Example, Kernel, Maker
from ds4mlx.top_k import top_k_indices

FEW_QUERIES = 8  # fewer are given large threadgroups, and several of them
SHARE = 16  # a threadgroup's share of a query's rows is at least this many times the count
_FEW_THREADS = 1024
_MANY_THREADS = 256

KERNEL = Kernel(
    name="top_k",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("scores", "candidates", "wanted"),
    outputs=("chosen",),
    functions=("row_offset.metal", "functions.metal"),
)
KERNELS = (KERNEL,)

TopK = Callable[[mx.array, int], mx.array]


def fallback(scores: mx.array, count: int) -> mx.array:
    return top_k_indices(scores, count)


def build(maker: Maker) -> TopK:
    """The launching function, for any number of queries, rows and `count`."""
    choose_of_many = KERNEL.specialise(maker, THREADS=_MANY_THREADS, MERGE=False)
    choose_of_few = KERNEL.specialise(maker, THREADS=_FEW_THREADS, MERGE=False)
    merge = KERNEL.specialise(maker, THREADS=_FEW_THREADS, MERGE=True)
    dtypes = (mx.int32,)
    few, many = (_FEW_THREADS, 1, 1), (_MANY_THREADS, 1, 1)

    @cache
    def wanted(count: int) -> mx.array:
        return mx.array([count], mx.int32)

    def top_k(scores: mx.array, count: int) -> mx.array:
        queries, rows = scores.shape
        if rows < CONSTANT_SPACE_BELOW:
            return fallback(scores, count)  # these could come in another address space
        inputs = [scores, scores, wanted(count)]
        shapes = ((queries, count),)
        if queries >= FEW_QUERIES:
            return choose_of_many(inputs, shapes, dtypes, (_MANY_THREADS, queries, 1), many)[0]
        shares = rows // (SHARE * count)
        if shares < 2:
            return choose_of_few(inputs, shapes, dtypes, (_FEW_THREADS, queries, 1), few)[0]
        threads = (shares * _FEW_THREADS, queries, 1)
        inputs[1] = choose_of_few(inputs, ((queries, shares * count),), dtypes, threads, few)[0]
        return merge(inputs, shapes, dtypes, (_FEW_THREADS, queries, 1), few)[0]

    return top_k


def examples() -> Iterator[Example]:
    random = np.random.default_rng(2)
    for queries, rows, count in ((1, 300, 16), (1, 1200, 16), (9, 300, 16)):
        # Few distinct scores, so that most are tied; some rows are not visible.
        scores = random.integers(-9, 9, (queries, rows)).astype(np.float32)
        scores[:, -5:] = -np.inf
        label = f"{count} of {rows} rows for {queries} queries"
        yield Example(label, partial(build), fallback, (mx.array(scores), count), 0)
