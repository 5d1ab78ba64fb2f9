"""The compressed rows of the windows of tokens that a step completes.

Contract, for n tokens from position s = numbers[0], w >= 1 windows that end in the step, D head dim, r ratio,
k = 2 where windows overlap (r = 4) and 1 elsewhere, W frontier width, which is 2 k D, and 4 * 128 more where
windows overlap: frontier_ring float32 [k * r, W] (earlier tokens, position p in slot p mod k * r), frontier
[n, W] (the step's own), norm [D], index_norm [128] or None, window_rotation [w, D], numbers int32 [8],
windows = w -> rows [w, D] (float16 if rows are rounded, else float32), index_rows float32 [w, 128] or None.

A frontier row is [kv | score] of the attention compressor, k D each, then those of the index compressor, 2 *
128 each. A window's row is, for each channel alone, the softmax of its tokens' scores times their values.
Where windows overlap, the tokens of the window before it take part, with the first halves of their columns,
and its own with the second. A score at or below half of NO_SCORE has no weight; a channel without other
scores is 0. The row is then normed, turned and rounded as every cached row (ds4mlx/kernels/cached_row.py),
the index row as every index vector (ds4mlx/kernels/index_queries). Before rounding, rows are within 2e-6 of
the exact result in parts of the largest: weights have the errors of an exponential function, and an average
of 128 can be a tenth of its terms. Rounding itself is exact.

Tokens are weighed in ascending order, eight at a time, and squares summed as in attention_rows: the same bits
each time. Spec: model §4.6 and §5.3.

Threads: 256 a group, groups [w, 2 with index rows, else 1]. The first group of a window makes its row, a pair
of channels a thread, so that a simdgroup reads 256 neighbouring bytes of a token's scores; of the second, one
simdgroup makes the index row, four channels a lane. A step's arrays have fewer than 2^32 numbers, so that
places in them are 32-bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from ds4mlx import compressor
from ds4mlx.kernels.cached_row import FUNCTIONS, THREADS, cached_row, cached_row_constants, row_dtype
from ds4mlx.kernels.index_queries import INDEX_DIM, INDEX_FUNCTIONS, index_vectors
from ds4mlx.kernels.kernel import Example, Kernel, Maker
from ds4mlx.kernels.sample_rows import CLOSE, ONE_STEP, normal, numbers, turns
from shared.kv.payload import NO_SCORE

_FOLDER = Path(__file__).parent
_OVERLAPPING = 4  # the ratio whose windows overlap
_CHUNK = 8  # tokens that the kernel weighs at a time

ROWS = Kernel(
    name="compress_rows",
    body=_FOLDER / "rows.metal",
    inputs=("ring", "own", "norm", "rotation", "numbers"),
    outputs=("rows",),
    functions=(*FUNCTIONS, "functions.metal"),
)
ROWS_AND_INDEX = Kernel(
    name="compress_rows_and_index",
    body=_FOLDER / "rows_and_index.metal",
    inputs=("ring", "own", "norm", "index_norm", "rotation", "numbers"),
    outputs=("rows", "index_rows"),
    functions=(*FUNCTIONS, *INDEX_FUNCTIONS, "functions.metal"),
)
KERNELS = (ROWS, ROWS_AND_INDEX)


class Compress(Protocol):
    def __call__(
        self,
        frontier_ring: mx.array,
        frontier: mx.array,
        norm: mx.array,
        index_norm: mx.array | None,
        window_rotation: mx.array,
        numbers: mx.array,
        *,
        windows: int,
    ) -> tuple[mx.array, mx.array | None]: ...


def fallback(
    frontier_ring: mx.array,
    frontier: mx.array,
    norm: mx.array,
    index_norm: mx.array | None,
    window_rotation: mx.array,
    numbers: mx.array,
    *,
    windows: int,
    rotary_dim: int,
    epsilon: float,
    rounds: bool,
) -> tuple[mx.array, mx.array | None]:
    ratio = frontier_ring.shape[0] // (1 if index_norm is None else 2)
    tokens = _tokens(frontier_ring, frontier, numbers[0], ratio, windows)
    previous, current = compressor.windows(tokens, ratio)
    width = norm.shape[0] * (1 if index_norm is None else 2)
    pooled = compressor.pool(previous, current, slice(0, width), slice(width, 2 * width))
    rows = cached_row(pooled, norm, window_rotation, rotary_dim=rotary_dim, epsilon=epsilon, rounds=rounds)
    if index_norm is None:
        return rows, None
    kv, score = slice(2 * width, 2 * width + 2 * INDEX_DIM), slice(2 * width + 2 * INDEX_DIM, None)
    pooled = mx.fast.rms_norm(compressor.pool(previous, current, kv, score), index_norm, epsilon)
    return rows, index_vectors(pooled, window_rotation, rounds)


def _tokens(ring: mx.array, own: mx.array, start: mx.array, ratio: int, windows: int) -> mx.array:
    """Frontier rows of the windows' tokens, where windows overlap after those of the window before."""
    slots = ring.shape[0]
    overlap = slots - ratio
    count = windows * ratio
    ahead = mx.arange(-overlap, count) - start % ratio  # of the step's first token
    # Only the first `slots` of them can be of earlier steps.
    head = ahead[:slots, None]
    earlier = mx.take(ring, (start + ahead[:slots]) % slots, axis=0)
    in_step = mx.maximum(ahead, 0)
    head = mx.where(head < 0, earlier, mx.take(own, in_step[:slots], axis=0))
    if windows == 1:
        return head
    tokens = mx.take(own, in_step, axis=0)
    tokens[:slots] = head  # in place
    return tokens


def build(
    maker: Maker, *, head_dim: int, rotary_dim: int, ratio: int, epsilon: float, rounds: bool
) -> Compress:
    """The launching function. Raises ValueError for rows that `cached_row_constants` refuses, heads narrower
    than index rows, and ratios other than 4 and multiples of 8."""
    overlaps = ratio == _OVERLAPPING
    halves = 2 if overlaps else 1
    if ratio <= 0 or halves * ratio % _CHUNK:
        raise ValueError(f"windows of {ratio} tokens: they must be of 4, or of a multiple of {_CHUNK}")
    if overlaps and head_dim < INDEX_DIM:
        raise ValueError(f"rotations of {head_dim} numbers turn no index rows of {INDEX_DIM}")
    constants = cached_row_constants(head_dim=head_dim, rotary_dim=rotary_dim, epsilon=epsilon, rounds=rounds)
    launch = (ROWS_AND_INDEX if overlaps else ROWS).specialise(
        maker,
        **constants,
        RATIO=ratio,
        HALVES=halves,
        SLOTS=halves * ratio,
        FRONTIER_WIDTH=2 * halves * head_dim + (4 * INDEX_DIM if overlaps else 0),
        UNSCORED=float(NO_SCORE) / 2,
    )
    dtypes = (row_dtype(rounds), mx.float32)[:halves]
    group = (THREADS, 1, 1)

    def compress(
        frontier_ring: mx.array,
        frontier: mx.array,
        norm: mx.array,
        index_norm: mx.array | None,
        window_rotation: mx.array,
        numbers: mx.array,
        *,
        windows: int,
    ) -> tuple[mx.array, mx.array | None]:
        grid = (windows * THREADS, halves, 1)
        if index_norm is None:
            inputs = [frontier_ring, frontier, norm, window_rotation, numbers]
            return launch(inputs, ((windows, head_dim),), dtypes, grid, group)[0], None
        inputs = [frontier_ring, frontier, norm, index_norm, window_rotation, numbers]
        shapes = ((windows, head_dim), (windows, INDEX_DIM))
        rows, index_rows = launch(inputs, shapes, dtypes, grid, group)
        return rows, index_rows

    return compress


def examples() -> Iterator[Example]:
    """Windows that begin before the step, of both kinds, rounded and not."""
    head_dim, rotary = 128, 64
    for ratio, start, count in ((_OVERLAPPING, 6, 7), (16, 9, 30)):
        overlaps = ratio == _OVERLAPPING
        width, slots = (4 * (head_dim + INDEX_DIM), 8) if overlaps else (2 * head_dim, ratio)
        windows = (start + count) // ratio - start // ratio
        for rounds, tolerance in ((False, CLOSE), (True, ONE_STEP)):
            random = np.random.default_rng(1)
            made = partial(
                build, head_dim=head_dim, rotary_dim=rotary, ratio=ratio, epsilon=1e-6, rounds=rounds
            )
            expected = partial(fallback, windows=windows, rotary_dim=rotary, epsilon=1e-6, rounds=rounds)
            arguments = (
                normal(random, slots, width),
                normal(random, count, width),
                normal(random, head_dim),
                normal(random, INDEX_DIM) if overlaps else None,
                turns(random, windows, head_dim, rotary),
                numbers(start, count),
            )
            label = f"ratio {ratio}, rounds {rounds}"
            yield Example(label, partial(_build_for, made, windows), expected, arguments, tolerance)


def _build_for(made: Callable[[Maker], Compress], windows: int, maker: Maker) -> Callable[..., Any]:
    return partial(made(maker), windows=windows)
