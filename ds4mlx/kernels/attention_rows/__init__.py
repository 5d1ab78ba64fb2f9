"""What a token's attention needs besides its queries: ranks, key and value row, frontier row.

Contract, for n tokens from position numbers[0], Q query rank, D head dim, W frontier width, r ratio: low
float32 [n, Q + D] (the ranks, then the row, as projected), compressor float32 [n, C], C >= W (or None),
query_norm [Q], key_value_norm [D], positional float32 [r, W] (or None), rotation float32 [n, D], numbers
int32 [8] -> ranks float32 [n, Q], rows [n, D] (float16 if rows are rounded, else float32), frontier float32
[n, W] or None.

  ranks    = low[:Q] / sqrt(mean of squares + epsilon) * query_norm
  rows     = low[Q:], normed alike with key_value_norm, turned, rounded: see ds4mlx/kernels/cached_row.py
  frontier = compressor[:W] + positional[position % r]

Squares are summed in float32, by each thread over its numbers in ascending order and then over the
threadgroup: the same bits each time. Ranks and unrounded rows are within 1e-6 of the exact result in parts of
the largest, for at most 2,048 squares with errors of 2^-24 each, a root and three products. Rounding itself
is exact, so rounded rows are those of the unrounded ones, bit for bit; an error before it can move a number
by one step of FP8. The frontier row is one addition. Spec: model §4.5, steps 2 and 3, and §4.6.

Threads: 256 a group, groups [parts, n]. Part 0 norms the ranks, part 1 makes the row (a pair of channels a
thread, a simdgroup for each FP8 block), each further part adds 1,024 channels of the frontier row. A step's
arrays have fewer than 2^32 numbers, so that places in them are 32-bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.cached_row import FUNCTIONS, THREADS, cached_row, cached_row_constants, row_dtype
from ds4mlx.kernels.kernel import Example, Kernel, Maker
from ds4mlx.kernels.sample_rows import CLOSE, ONE_STEP, normal, numbers, turns

_FOLDER = Path(__file__).parent
_CHANNELS_EACH = 4  # of a frontier row, by one thread
_GROUP = (THREADS, 1, 1)

WINDOW_ONLY = Kernel(
    name="attention_rows_window_only",
    body=_FOLDER / "window_only.metal",
    inputs=("low", "query_norm", "key_value_norm", "rotation"),
    outputs=("ranks", "rows"),
    functions=(*FUNCTIONS, "functions.metal"),
)
COMPRESSED = Kernel(
    name="attention_rows_compressed",
    body=_FOLDER / "compressed.metal",
    inputs=("low", "compressor", "query_norm", "key_value_norm", "positional", "rotation", "numbers"),
    outputs=("ranks", "rows", "frontier"),
    functions=(*FUNCTIONS, "functions.metal"),
)
KERNELS = (WINDOW_ONLY, COMPRESSED)

# attention_rows(low, compressor, query_norm, key_value_norm, positional, rotation, numbers)
AttentionRows = Callable[
    [mx.array, mx.array | None, mx.array, mx.array, mx.array | None, mx.array, mx.array],
    tuple[mx.array, mx.array, mx.array | None],
]


def fallback(
    low: mx.array,
    compressor: mx.array | None,
    query_norm: mx.array,
    key_value_norm: mx.array,
    positional: mx.array | None,
    rotation: mx.array,
    numbers: mx.array,
    *,
    rotary_dim: int,
    epsilon: float,
    rounds: bool,
) -> tuple[mx.array, mx.array, mx.array | None]:
    ranks, row = mx.split(low, [query_norm.shape[0]], axis=-1)
    ranks = mx.fast.rms_norm(ranks, query_norm, epsilon)
    rows = cached_row(row, key_value_norm, rotation, rotary_dim=rotary_dim, epsilon=epsilon, rounds=rounds)
    if compressor is None or positional is None:
        return ranks, rows, None
    ratio, width = positional.shape
    in_window = (numbers[0] + mx.arange(low.shape[0])) % ratio
    return ranks, rows, compressor[:, :width] + mx.take(positional, in_window, axis=0)


def build(
    maker: Maker,
    *,
    query_rank: int,
    head_dim: int,
    rotary_dim: int,
    ratio: int,
    frontier_width: int,
    compressor_width: int,
    epsilon: float,
    rounds: bool,
) -> AttentionRows:
    """The launching function; `frontier_width` and `compressor_width` are of no concern where `ratio` is 0.

    Raises ValueError for an odd query rank, a compressor narrower than the frontier, or rows that
    `cached_row_constants` refuses.
    """
    if query_rank % 2 or query_rank < 2:
        raise ValueError(f"the query rank is {query_rank}: rows that follow it would not be aligned")
    if compressor_width < frontier_width:
        raise ValueError(f"a compressor of {compressor_width} outputs makes no frontier of {frontier_width}")
    constants = cached_row_constants(head_dim=head_dim, rotary_dim=rotary_dim, epsilon=epsilon, rounds=rounds)
    constants["QUERY_RANK"] = query_rank
    dtypes = (mx.float32, row_dtype(rounds), mx.float32)[: 3 if ratio else 2]
    threads = 2 * THREADS
    if not ratio:
        launch = WINDOW_ONLY.specialise(maker, **constants)
    else:
        threads += -(-frontier_width // (_CHANNELS_EACH * THREADS)) * THREADS
        launch = COMPRESSED.specialise(
            maker,
            **constants,
            RATIO=ratio,
            FRONTIER_WIDTH=frontier_width,
            COMPRESSOR_WIDTH=compressor_width,
            CHANNELS_EACH=_CHANNELS_EACH,
        )

    def attention_rows(
        low: mx.array,
        compressor: mx.array | None,
        query_norm: mx.array,
        key_value_norm: mx.array,
        positional: mx.array | None,
        rotation: mx.array,
        numbers: mx.array,
    ) -> tuple[mx.array, mx.array, mx.array | None]:
        count = low.shape[0]
        grid = (threads, count, 1)
        if compressor is None or positional is None:
            inputs = [low, query_norm, key_value_norm, rotation]
            ranks, rows = launch(inputs, ((count, query_rank), (count, head_dim)), dtypes, grid, _GROUP)
            return ranks, rows, None
        ranks, rows, frontier = launch(
            [low, compressor, query_norm, key_value_norm, positional, rotation, numbers],
            ((count, query_rank), (count, head_dim), (count, frontier_width)),
            dtypes,
            grid,
            _GROUP,
        )
        return ranks, rows, frontier

    return attention_rows


def examples() -> Iterator[Example]:
    """Three tokens, with and without a compressor, rounded and not."""
    rank, head_dim, rotary, width, count = 96, 192, 64, 200, 3
    for rounds, tolerance in ((False, CLOSE), (True, ONE_STEP)):
        random = np.random.default_rng(1)
        low, query_norm = normal(random, count, rank + head_dim), normal(random, rank)
        key_value_norm, rotation = normal(random, head_dim), turns(random, count, head_dim, rotary)
        step = numbers(6, count)
        expected = partial(fallback, rotary_dim=rotary, epsilon=1e-6, rounds=rounds)
        for ratio in (0, 4):
            made = partial(
                build,
                query_rank=rank,
                head_dim=head_dim,
                rotary_dim=rotary,
                ratio=ratio,
                frontier_width=width,
                compressor_width=width + 8,
                epsilon=1e-6,
                rounds=rounds,
            )
            compressor = normal(random, count, width + 8) if ratio else None
            positional = normal(random, ratio, width) if ratio else None
            arguments = (low, compressor, query_norm, key_value_norm, positional, rotation, step)
            yield Example(f"ratio {ratio}, rounds {rounds}", made, expected, arguments, tolerance)
