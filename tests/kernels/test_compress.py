from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels import compress
from ds4mlx.kernels.kernel import Maker
from shared.kv.payload import NO_SCORE
from shared.quant.rounding import hadamard128, round_fp4
from tests.kernels.row_reference import (
    Array,
    Exact,
    array,
    assert_close,
    normed,
    rotation_table,
    step_numbers,
    stored,
    turned,
)
from tests.support.golden import golden_arrays

CLOSE = 2e-6
EPSILON = 1e-6
INDEX_DIM = 128
# Called with `rounds`, gives what is called with the arguments and `windows`.
Make = Callable[..., Callable[..., Any]]


@dataclass(frozen=True)
class Layer:
    ratio: int
    head_dim: int
    rotary_dim: int = 64

    @property
    def overlaps(self) -> bool:
        return self.ratio == 4

    @property
    def slots(self) -> int:
        return 8 if self.overlaps else self.ratio

    def build(self, maker: Maker, *, rounds: bool, epsilon: float = EPSILON) -> compress.Compress:
        return compress.build(
            maker,
            head_dim=self.head_dim,
            rotary_dim=self.rotary_dim,
            ratio=self.ratio,
            epsilon=epsilon,
            rounds=rounds,
        )

    def history(self, random: np.random.Generator, tokens: int) -> Array:
        """Frontier rows of positions -slots to tokens - 1; before the first token, rows without a score."""
        parts = [2 * self.head_dim, 2 * INDEX_DIM] if self.overlaps else [self.head_dim]
        columns = []
        for width in parts:
            values = random.standard_normal((self.slots + tokens, width), np.float32)
            scores = 3 * random.standard_normal((self.slots + tokens, width), np.float32)
            scores[: self.slots] = NO_SCORE
            columns += [values, scores]
        rows = np.concatenate(columns, axis=1)
        rows[: self.slots, : parts[0]] = 0
        return rows

    def ring(self, history: Array, start: int) -> Array:
        """What the ring holds at `start`, and NaN where no window of the step may read."""
        ring = np.full((self.slots, history.shape[1]), np.nan, np.float32)
        first = start // self.ratio * self.ratio - (self.ratio if self.overlaps else 0)
        for position in range(first, start):
            ring[position % self.slots] = history[self.slots + position]
        return ring


def _pooled(values: Array, scores: Array) -> Exact:
    """[tokens, width] -> [width], token by token as the equation has it."""
    values, scores = values.astype(np.float64), scores.astype(np.float64)
    scored = scores > NO_SCORE / 2
    largest = np.where(scored, scores, -np.inf).max(axis=0)
    weights = np.where(scored, np.exp(scores - np.where(np.isfinite(largest), largest, 0)), 0)
    total = weights.sum(axis=0)
    result: Exact = (weights * values).sum(axis=0) / np.where(total == 0, 1, total)
    return result


def _expected(layer: Layer, history: Array, window: int, column: int, width: int) -> Exact:
    """The pooled row of a window, of the compressor of `width` channels whose columns begin at `column`."""
    own = history[layer.slots + window * layer.ratio :][: layer.ratio, column:]
    if not layer.overlaps:
        return _pooled(own[:, :width], own[:, width : 2 * width])
    before = history[layer.slots + (window - 1) * layer.ratio :][: layer.ratio, column:]
    values = np.concatenate((before[:, :width], own[:, width : 2 * width]))
    scores = np.concatenate((before[:, 2 * width : 3 * width], own[:, 3 * width : 4 * width]))
    return _pooled(values, scores)


def _check(maker: Maker, layer: Layer, start: int, count: int) -> None:
    history = layer.history(np.random.default_rng(1), start + count)
    _check_history(partial(layer.build, maker), layer, history, start)


def _check_history(make: Make, layer: Layer, history: Array, start: int) -> None:
    """What `make(rounds=...)` gives for a step from `start` to the history's end."""
    random = np.random.default_rng(2)
    count = len(history) - layer.slots - start
    first, end = start // layer.ratio, (start + count) // layer.ratio
    rotation = rotation_table(random, end - first, layer.head_dim, layer.rotary_dim)
    norm, index_norm = (random.standard_normal(width, np.float32) for width in (layer.head_dim, INDEX_DIM))
    arguments = [
        mx.array(layer.ring(history, start)),
        mx.array(history[layer.slots + start :]),
        mx.array(norm),
        mx.array(index_norm) if layer.overlaps else None,
        mx.array(rotation),
        step_numbers(start, count, end),
    ]
    rows, index_rows = make(rounds=False)(*arguments, windows=end - first)
    pooled = np.array([_expected(layer, history, w, 0, layer.head_dim) for w in range(first, end)])
    assert rows.dtype == mx.float32
    _assert_each_close(array(rows), turned(normed(pooled, norm, EPSILON), rotation))
    rounded, rounded_index = make(rounds=True)(*arguments, windows=end - first)
    assert rounded.dtype == mx.float16
    np.testing.assert_array_equal(array(rounded), stored(array(rows), layer.rotary_dim))
    if not layer.overlaps:
        assert index_rows is None
        assert rounded_index is None
        return
    assert index_rows is not None
    assert rounded_index is not None
    column = 4 * layer.head_dim
    pooled = np.array([_expected(layer, history, w, column, INDEX_DIM) for w in range(first, end)])
    _assert_each_close(array(index_rows), turned(normed(pooled, index_norm, EPSILON), rotation))
    np.testing.assert_array_equal(array(rounded_index), round_fp4(hadamard128(array(index_rows))))


def _assert_each_close(rows: Array, expected: npt.NDArray[Any]) -> None:
    assert rows.shape == expected.shape
    for found, exact in zip(rows, expected, strict=True):
        assert_close(found, exact, CLOSE)


def _check_every_phase(maker: Maker) -> None:
    """Steps that begin and end anywhere in a window, in the first windows and later ones."""
    layer = Layer(4, 128)
    built = {rounds: layer.build(maker, rounds=rounds) for rounds in (False, True)}

    def make(rounds: bool) -> compress.Compress:
        return built[rounds]

    for start in range(10):
        for count in (1, 2, 4, 5, 11):
            if (start + count) // 4 > start // 4:
                history = layer.history(np.random.default_rng(start), start + count)
                _check_history(make, layer, history, start)


def _strange_scores(layer: Layer, tokens: int) -> Array:
    """Scores in every order and far apart, none at all, and minus infinity for none."""
    history = layer.history(np.random.default_rng(4), tokens)
    halves = 2 if layer.overlaps else 1
    scores = history[layer.slots :, halves * layer.head_dim :][:, : halves * layer.head_dim]
    rising = np.linspace(-200, 200, tokens, dtype=np.float32)
    scores[:, ::16], scores[:, 1::16] = rising[:, None], -rising[:, None]
    scores[:, 2::16] = NO_SCORE
    scores[1:, 3::16] = NO_SCORE
    scores[:-1, 4::16] = NO_SCORE
    scores[::2, 5::16] = -np.inf
    scores[1:, 6::16] = -np.inf
    scores[:, 7::16] = 3e8 * rising[:, None]
    scores[:, 8::16] = NO_SCORE * 0.75
    return history


def _check_strange_scores(maker: Maker, layer: Layer) -> None:
    history = _strange_scores(layer, 2 * layer.ratio)
    _check_history(partial(layer.build, maker), layer, history, layer.ratio)


def _check_small_values(maker: Maker) -> None:
    """So small that epsilon counts."""
    layer = Layer(4, 128)
    history = layer.history(np.random.default_rng(7), 9)
    history[:, : 2 * layer.head_dim] *= 1e-3
    history[:, 4 * layer.head_dim :][:, : 2 * INDEX_DIM] *= 1e-3
    _check_history(partial(layer.build, maker), layer, history, 6)


def _check_golden(maker: Maker) -> None:
    """A pooled row of ones is its own norm: then rows are the norm's weights, rounded."""
    vectors = golden_arrays("vectors.npz")
    layer = Layer(4, 256)
    make = layer.build(maker, rounds=True, epsilon=0.0)
    history = layer.history(np.random.default_rng(5), 8)
    history[:, : 2 * layer.head_dim] = 1
    history[:, 4 * layer.head_dim :][:, : 2 * INDEX_DIM] = 1
    still = mx.array(rotation_table(np.random.default_rng(5), 1, layer.head_dim, 0))
    ring, own = mx.array(layer.ring(history, 7)), mx.array(history[-1:])
    for norm, expected, index_norm, index_expected in zip(
        *(vectors[name] for name in ("fp8_in", "fp8_out", "indexer_in", "indexer_out")), strict=True
    ):
        arguments = (ring, own, mx.array(norm), mx.array(index_norm), still, step_numbers(7, 1, 2))
        rows, index_rows = make(*arguments, windows=1)
        assert index_rows is not None
        np.testing.assert_array_equal(array(rows)[0], expected.astype(np.float16).astype(np.float32))
        np.testing.assert_array_equal(array(index_rows)[0], index_expected)


# What a mutant of the kernels has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "golden rows": _check_golden,
    "windows of 4, every phase": _check_every_phase,
    "small values": _check_small_values,
    "windows of 4, wider than a group": partial(_check, layer=Layer(4, 576), start=1_002, count=7),
    "windows of 8 in parts of a block": partial(_check, layer=Layer(8, 96, 32), start=5, count=20),
    "windows of 16": partial(_check, layer=Layer(16, 512), start=15, count=18),
    "windows of 128": partial(_check, layer=Layer(128, 128), start=250, count=7),
    "strange scores, windows of 4": partial(_check_strange_scores, layer=Layer(4, 128)),
    "strange scores, windows of 32": partial(_check_strange_scores, layer=Layer(32, 128)),
}
LONG_CASES: dict[str, Callable[[Maker], None]] = {
    "the published shape, windows of 4": partial(_check, layer=Layer(4, 512), start=4_099, count=9),
    "the published shape, windows of 128": partial(_check, layer=Layer(128, 512), start=100, count=200),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("case", LONG_CASES)
def test_kernel_of_published_shapes(case: str, maker: Maker) -> None:
    LONG_CASES[case](maker)


@pytest.mark.parametrize(
    ("ratio", "start", "count"), [(4, 0, 9), (4, 6, 3), (4, 8, 4), (16, 9, 30), (16, 16, 16)]
)
def test_fallback(ratio: int, start: int, count: int) -> None:
    layer = Layer(ratio, 128)
    make = partial(partial, compress.fallback, rotary_dim=64, epsilon=EPSILON)
    history = layer.history(np.random.default_rng(6), start + count)
    _check_history(make, layer, history, start)


@pytest.mark.parametrize(
    ("ratio", "head_dim", "message"),
    [
        (12, 128, "windows of 12"),
        (0, 128, "windows of 0"),
        (4, 64, "rotations of 64"),
        (8, 130, "rows of 130"),
    ],
)
def test_refused_sizes(ratio: int, head_dim: int, message: str, maker: Maker) -> None:
    with pytest.raises(ValueError, match=message):
        Layer(ratio, head_dim).build(maker, rounds=True)
