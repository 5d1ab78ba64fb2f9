"""Attention: each query over its window's raw rows and over compressed rows; a row is key and value of every
head.

Contract, for n tokens of which token t stands at position p = start + t:
`queries` float32 [n, H*D] as projected; each head is divided by its root mean square, turned by `rotation`
and scaled by D^-0.5. It sees
- the raw rows of positions max(0, p-W+1)..p: those before `start` in `ring` [ring rows, D] (slot: position
  mod ring rows, which may hold more than W), the step's own in `own` [n, D];
- of `compressed` [capacity, D] the rows c < (p+1) // ratio: all of them, or if `chosen` int32 [n, top k] is
  given, those that it names. Only a query that sees fewer than top k rows may be given others; they count
  for nothing.
Rows are float16 where the model rounds them (`rounds`), else float32. `sinks` float32 [H] join the softmax
without a row. The result is turned back at p: float32 [n, H*D]. `numbers` int32 [8] begins with start, n and
ring rows. Spec: model 4.5, steps 2, 6, 7 and 8.

Up to 8 tokens, and at any number of tokens if the model rounds nothing, all is float32, within 2e-6 of the
largest output: `partial` softmaxes up to 32 slices of the rows, 32 rows at a time, one below the other;
`combine` joins the slices in order. A simdgroup has two heads of one slice: lanes are neighbouring channels,
rows come from the cache that all simdgroups of a threadgroup share, and there is no barrier at all.

More tokens of a model that rounds take `prefill`, within 2e-3 of the largest output: the normed and turned
queries and the softmax weights (relative to the largest score so far, at most 1; below 2^-25 they are 0) are
rounded to float16, and a denominator sums the rounded weights. Products are summed in float32, 8 rows at a
time, 16 rows a tile, rows in the order above. A threadgroup has 32 heads of one token, so that a row's bytes
serve 32 products; queries and sums stay in registers as 8x8 matrices, 27 KB of threadgroup memory hold 16
rows at D = 512.

Sums have a fixed order: equal inputs give equal bits. Must not know: weights, sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.attend.arrays import fallback
from ds4mlx.kernels.kernel import CONSTANT_SPACE_BELOW, Example, Kernel, Maker
from ds4mlx.step import Step
from shared.model.known_shapes import FLASH

__all__ = ["KERNELS", "Attend", "build", "examples", "fallback"]

_FOLDER = Path(__file__).parent
_FUNCTIONS = ("rotate.metal", "functions.metal")
_ROWS = ("queries", "own", "ring", "compressed", "chosen")
PARTIAL = Kernel(
    name="attend_partial",
    body=_FOLDER / "partial.metal",
    inputs=(*_ROWS, "rotation", "numbers"),
    outputs=("sums", "stats"),
    functions=_FUNCTIONS,
    small=("chosen",),
)
COMBINE = Kernel(
    name="attend_combine",
    body=_FOLDER / "combine.metal",
    inputs=("sums", "stats", "sinks", "rotation"),
    outputs=("mixed",),
    functions=_FUNCTIONS,
    small=("stats",),
)
PREFILL = Kernel(
    name="attend_prefill",
    body=_FOLDER / "prefill.metal",
    inputs=(*_ROWS, "sinks", "rotation", "numbers"),
    outputs=("mixed",),
    functions=_FUNCTIONS,
)
KERNELS = (PARTIAL, COMBINE, PREFILL)

# Tokens up to which attention is float32 and a token's rows are shared out among simdgroups.
FEW_TOKENS = 8
# Slices of the rows, over all tokens of a step; a simdgroup's lanes hold one token's.
LARGEST_SLICES = 32
_TILE = 32  # rows that a simdgroup takes at a time
_GROUP = 256
_PREFILL_HEADS = 32
_LARGEST_HEAD = 512  # beyond it registers and threadgroup memory do not suffice

# attend(queries, own, ring, compressed, chosen, sinks, rotation, numbers, step) -> mixed
Attend = Callable[
    [
        mx.array,
        mx.array,
        mx.array,
        mx.array | None,
        mx.array | None,
        mx.array,
        mx.array,
        mx.array,
        Step,
    ],
    mx.array,
]


def build(
    maker: Maker,
    *,
    heads: int,
    head_dim: int,
    window: int,
    ratio: int,
    top_k: int,
    epsilon: float,
    rounds: bool,
) -> Attend:
    """The launching function for layers of this compression ratio (0: raw rows only). `top_k` is the width of
    `chosen`, where that is given.

    Raises ValueError if the head dimension is not a multiple of 64 or above 512.
    """
    if head_dim % 64 or head_dim > _LARGEST_HEAD:
        raise ValueError(
            f"attention kernels take heads of 64, 128, ... {_LARGEST_HEAD} channels, not {head_dim}"
        )
    row = mx.float16 if rounds else mx.float32
    dimensions = {
        "D": head_dim,
        "HEADS": heads,
        "WINDOW": window,
        "RATIO": ratio,
        "EPSILON": epsilon,
        "SCALE": head_dim**-0.5,
        "ROW": row,
    }
    each = 2 if heads % 2 == 0 else 1
    channels = 4 if head_dim % 128 == 0 else 2
    parts = {"PART": channels, "PARTS": head_dim // (32 * channels), "EACH": each}
    choices = (0, top_k) if top_k else (0,)
    # Looking at each launch which of them are small costs more time than all the rest here.
    one_size = partial(replace, small=())
    sliced = PARTIAL if top_k < CONSTANT_SPACE_BELOW else one_size(PARTIAL)
    joined = COMBINE if 2 * heads < CONSTANT_SPACE_BELOW else one_size(COMBINE)
    partials = [sliced.specialise(maker, **dimensions, **parts, TOP_K=width) for width in choices]
    combine = joined.specialise(maker, **dimensions, **parts)
    prefills = [PREFILL.specialise(maker, **dimensions, TOP_K=width) for width in choices if rounds]
    few = FEW_TOKENS if rounds else 1 << 31

    threads = 32 * heads // each
    group = (min(threads, _GROUP), 1, 1)
    head_threads = head_dim // channels
    head_group = (head_threads, 1, 1)
    prefill_threads = -(-heads // _PREFILL_HEADS) * _GROUP
    prefill_group = (_GROUP, 1, 1)
    width = heads * head_dim
    float32, two_floats = (mx.float32,), (mx.float32, mx.float32)

    def attend(
        queries: mx.array,
        own: mx.array,
        ring: mx.array,
        compressed: mx.array | None,
        chosen: mx.array | None,
        sinks: mx.array,
        rotation: mx.array,
        numbers: mx.array,
        step: Step,
    ) -> mx.array:
        count = step.count
        chooses = chosen is not None
        # Kernels never read what stands in for an input that is not there.
        inputs = [
            queries,
            own,
            ring,
            ring if compressed is None else compressed,
            numbers if chosen is None else chosen,
        ]
        if count > few:
            inputs += (sinks, rotation, numbers)
            grid = (prefill_threads, count, 1)
            return prefills[chooses](inputs, ((count, width),), float32, grid, prefill_group)[0]
        inputs += (rotation, numbers)
        end = step.start + count
        rows = min(end, window) + (top_k if chooses else end // ratio if ratio else 0)
        tiles = -(-rows // _TILE)
        slices = min(tiles, max(1, LARGEST_SLICES // count))
        shapes = ((count, slices, heads, head_dim), (count, slices, heads, 2))
        sums, stats = partials[chooses](inputs, shapes, two_floats, (threads, slices, count), group)
        grid = (head_threads, heads, count)
        return combine([sums, stats, sinks, rotation], ((count, width),), float32, grid, head_group)[0]

    return attend


def examples() -> Iterator[Example]:
    heads, head_dim, window, ratio, top_k = 4, 128, 24, 4, 7
    shape = replace(FLASH, head_count=heads, head_dim=head_dim, window=window)
    random = np.random.default_rng(12)

    def draw(*size: int) -> mx.array:
        return mx.array(random.standard_normal(size, np.float32))

    dimensions: dict[str, Any] = {"heads": heads, "head_dim": head_dim, "ratio": ratio, "epsilon": 1e-6}
    # The fallback has rounding errors of its own: more is allowed than against exact results.
    for count, rounds, chooses, tolerance in (
        (1, True, False, 5e-6),
        (3, True, True, 5e-6),
        (FEW_TOKENS + 2, True, False, 2e-3),
        (FEW_TOKENS + 3, True, True, 2e-3),
        (FEW_TOKENS + 1, False, True, 5e-6),
    ):
        step = Step(shape, 50, count, 40)
        dtype = mx.float16 if rounds else mx.float32
        visible = step.end // ratio
        seen = [(step.start + token + 1) // ratio for token in range(count)]
        chosen = [np.sort(random.permutation(rows)[:top_k]) for rows in seen]
        arguments = (
            draw(count, heads * head_dim),
            draw(count, head_dim).astype(dtype),
            draw(40, head_dim).astype(dtype),
            draw(visible + 2, head_dim).astype(dtype),
            mx.array(np.array(chosen, np.int32)) if chooses else None,
            draw(heads),
            step.rotation(ratio),
            step.numbers(ratio),
            step,
        )
        yield Example(
            f"{count} tokens, {'chosen' if chooses else 'all'} rows of {dtype}",
            partial(build, **dimensions, window=window, top_k=top_k, rounds=rounds),
            partial(fallback, **dimensions),
            arguments,
            tolerance,
        )
