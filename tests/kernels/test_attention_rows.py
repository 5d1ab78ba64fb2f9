from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import attention_rows
from ds4mlx.kernels.kernel import HEADERS, Maker, plain_text
from shared.quant.rounding import round_fp8_row
from tests.kernels.row_reference import (
    Array,
    array,
    assert_close,
    normed,
    rotation_table,
    step_numbers,
    stored,
    turned,
)
from tests.support.golden import golden_arrays

CLOSE = 1e-6
EPSILON = 1e-6


@dataclass(frozen=True)
class Layer:
    rank: int
    head_dim: int
    rotary_dim: int
    ratio: int = 0
    frontier: int = 0

    def build(self, maker: Maker, *, rounds: bool, epsilon: float = EPSILON) -> attention_rows.AttentionRows:
        return attention_rows.build(
            maker,
            query_rank=self.rank,
            head_dim=self.head_dim,
            rotary_dim=self.rotary_dim,
            ratio=self.ratio,
            frontier_width=self.frontier,
            compressor_width=self.frontier + 3,
            epsilon=epsilon,
            rounds=rounds,
        )


def _inputs(layer: Layer, count: int, sizes: tuple[float, float]) -> list[Array | None]:
    """low, compressor, query norm, key and value norm, positional, rotation."""
    random = np.random.default_rng(count)

    def normal(*shape: int) -> Array:
        return random.standard_normal(shape, np.float32)

    low = normal(count, layer.rank + layer.head_dim)
    low[:, : layer.rank] *= sizes[0]
    low[:, layer.rank :] *= sizes[1]
    return [
        low,
        normal(count, layer.frontier + 3) if layer.ratio else None,
        normal(layer.rank),
        normal(layer.head_dim),
        normal(layer.ratio, layer.frontier) if layer.ratio else None,
        rotation_table(random, count, layer.head_dim, layer.rotary_dim),
    ]


def _device(inputs: list[Array | None]) -> list[mx.array | None]:
    return [None if values is None else mx.array(values) for values in inputs]


def _check(
    maker: Maker, layer: Layer, start: int = 0, count: int = 1, sizes: tuple[float, float] = (1, 1)
) -> None:
    _check_one(partial(layer.build, maker), layer, start, count, sizes)


def _check_one(
    make: Callable[..., Callable[..., Any]], layer: Layer, start: int, count: int, sizes: tuple[float, float]
) -> None:
    """What `make(rounds=...)` gives."""
    inputs = _inputs(layer, count, sizes)
    low, compressor, query_norm, key_value_norm, positional, rotation = inputs
    assert low is not None
    assert query_norm is not None
    assert key_value_norm is not None
    assert rotation is not None
    arguments = (*_device(inputs), step_numbers(start, count))
    ranks, rows, frontier = make(rounds=False)(*arguments)
    assert rows.dtype == mx.float32
    assert_close(array(ranks), normed(low[:, : layer.rank], query_norm, EPSILON), CLOSE)
    expected = turned(normed(low[:, layer.rank :], key_value_norm, EPSILON), rotation)
    assert_close(array(rows), expected, CLOSE)
    _, rounded, _ = make(rounds=True)(*arguments)
    assert rounded.dtype == mx.float16
    np.testing.assert_array_equal(array(rounded), stored(array(rows), layer.rotary_dim))
    if positional is None or compressor is None:
        assert frontier is None
        return
    assert frontier is not None
    in_window = np.arange(start, start + count) % layer.ratio
    np.testing.assert_array_equal(array(frontier), compressor[:, : layer.frontier] + positional[in_window])


def _check_golden(maker: Maker) -> None:
    """A row of ones is its own norm: then rows are the norm's weights, rounded."""
    vectors = golden_arrays("vectors.npz")
    make = Layer(rank=32, head_dim=256, rotary_dim=64).build(maker, rounds=True, epsilon=0.0)
    ones = mx.array(np.ones((1, 32 + 256), np.float32))
    still = mx.array(rotation_table(np.random.default_rng(1), 1, 256, 0))
    for row, rounded in zip(vectors["fp8_in"], vectors["fp8_out"], strict=True):
        norm = mx.array(row)
        _, found, _ = make(ones, None, norm[:32], norm, None, still, step_numbers(0, 1))
        np.testing.assert_array_equal(array(found)[0], rounded.astype(np.float16).astype(np.float32))


def _edge_blocks() -> Array:
    """Blocks of FP8 whose largest number is at a doubling of the scale, below its floor, or zero; ties."""
    large = [448, 416, 432, 240, 248, 17, 15, 1.0625, 1.1875, 1, 0.9375]
    small = [2.0**-6 * part / 16 for part in (1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 33)]
    codes = np.array([*large, *small, *np.geomspace(2.0**-11, 400, 10)], np.float32)
    block = np.concatenate((codes, -codes))
    above = np.where(abs(block) == 448, np.nextafter(block, 2 * block), block)
    scaled = [block * np.float32(2.0**exponent) for exponent in (-40, -24, -23, -22, -21, 0, 30, 100)]
    scaled += [above * np.float32(2.0**exponent) for exponent in (-21, -3, 0, 5)]
    scaled += [np.roll(block[: len(block) // 2].repeat(2) / 2, place) for place in range(3)]
    # Every lane and either of its numbers may hold the largest one.
    for place in range(64):
        scaled.append(np.where(abs(block) > 20, 0, block))
        scaled[-1][place] = 448
    scaled += [block * np.float32(1e-4 / 448), np.zeros(64), np.full(64, 1e-45)]
    return np.array(scaled, np.float32)


def _check_edges(maker: Maker) -> None:
    """The rounding alone: float16, which follows it, hides the smallest steps."""
    blocks = _edge_blocks()
    kernel = maker(
        name="round_fp8_alone",
        input_names=["blocks"],
        output_names=["rounded"],
        source="""
            const uint place = thread_position_in_grid.x;
            ((device float2*)rounded)[place] = round_fp8(((const device float2*)blocks)[place]);
        """,
        header=plain_text(HEADERS / "rounding.metal"),
    )
    (found,) = kernel(
        inputs=[mx.array(blocks)],
        output_shapes=[blocks.shape],
        output_dtypes=[mx.float32],
        grid=(blocks.size // 2, 1, 1),
        threadgroup=(64, 1, 1),
    )
    np.testing.assert_array_equal(array(found), round_fp8_row(blocks, 0))


# What a mutant of the kernels has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "golden rows": _check_golden,
    "edges of FP8": _check_edges,
    "window only, a token": partial(_check, layer=Layer(96, 128, 64)),
    "window only, rows wider than a group": partial(_check, layer=Layer(320, 576, 64), count=2),
    "a group for each row, exactly": partial(_check, layer=Layer(256, 512, 64), count=2, sizes=(1, 1e-3)),
    "a part of a block": partial(_check, layer=Layer(2, 96, 32), count=3, sizes=(1, 30)),
    "all rotary": partial(_check, layer=Layer(64, 64, 64), count=2),
    "windows of 4": partial(_check, layer=Layer(96, 128, 64, 4, 1027), start=1_000_002, count=7),
    "windows of 128": partial(_check, layer=Layer(32, 128, 64, 128, 256), start=125, count=6),
    "frontier as wide as its groups": partial(_check, layer=Layer(32, 128, 64, 4, 1024), start=3, count=1),
    "small numbers, where epsilon counts": partial(
        _check, layer=Layer(288, 128, 64), count=2, sizes=(1e-3, 1e-4)
    ),
}
LONG_CASES: dict[str, Callable[[Maker], None]] = {
    "Flash, windows of 4": partial(_check, layer=Layer(1024, 512, 64, 4, 2560), start=4095, count=3),
    "PRO, windows of 128": partial(_check, layer=Layer(1536, 512, 64, 128, 1024), start=127, count=3),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("case", LONG_CASES)
def test_kernel_of_published_shapes(case: str, maker: Maker) -> None:
    LONG_CASES[case](maker)


@pytest.mark.parametrize("ratio", [0, 4])
def test_fallback(ratio: int) -> None:
    layer = Layer(96, 192, 64, ratio, 70 if ratio else 0)
    make = partial(partial, attention_rows.fallback, rotary_dim=64, epsilon=EPSILON)
    _check_one(make, layer, start=6, count=5, sizes=(1, 1))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"query_rank": 33}, "query rank"),
        ({"compressor_width": 69}, "frontier of 70"),
        ({"head_dim": 130}, "multiple of 4"),
        ({"head_dim": 160}, "multiple of 64 fewer"),
        ({"rotary_dim": 0}, "0 of them rotary"),
        ({"rotary_dim": 63}, "63 of them rotary"),
    ],
)
def test_refused_sizes(sizes: dict[str, int], message: str, maker: Maker) -> None:
    good = {"query_rank": 32, "head_dim": 128, "rotary_dim": 64, "ratio": 4}
    good |= {"frontier_width": 70, "compressor_width": 80}
    with pytest.raises(ValueError, match=message):
        attention_rows.build(maker, **{**good, **sizes}, epsilon=EPSILON, rounds=True)
