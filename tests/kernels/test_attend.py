"""The attention kernels against a float64 transcription. Whatever a query must not see is NaN, infinite or,
where another query of the step sees it, unlike everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx import step
from ds4mlx.kernels import attend
from ds4mlx.kernels.attend import arrays
from ds4mlx.kernels.kernel import Kernel, Maker
from ds4mlx.step import Step
from shared.model import known_shapes

Array = npt.NDArray[np.floating]
EPSILON = 1e-6
# Of the largest output. Prefill is compared with a reference whose queries are rounded as the kernel's are.
EXACT, HALF = 2e-6, 6e-4


@dataclass(frozen=True)
class Attention:
    """One call: tokens from `start`, with the window's rows in a ring, and rows compressed `ratio` to one."""

    start: int
    count: int
    ratio: int = 4
    top_k: int = 0  # 0: all visible rows
    heads: int = 4
    head_dim: int = 128
    window: int = 24
    ring_rows: int = 37
    rounds: bool = True
    query: float = 3.0  # scale of the queries
    scale: float = 1.0  # of the rows
    sink: float = 1.0  # largest size of a sink
    same_rows: bool = False
    rising: float = 0.0  # how far scores rise over the rows, compressed ones last; or fall

    @property
    def end(self) -> int:
        return self.start + self.count

    @property
    def half(self) -> bool:
        return self.rounds and self.count > attend.FEW_TOKENS


class Data:
    def __init__(self, call: Attention) -> None:
        random = np.random.default_rng(call.start * 7919 + call.count)
        self.call = call
        dtype = np.float16 if call.rounds else np.float32
        visible = call.end // call.ratio if call.ratio else 0
        rows = random.standard_normal((call.end + visible, call.head_dim)) * call.scale
        queries = random.standard_normal((call.count, call.heads, call.head_dim)) * call.query
        self.queries = queries.astype(np.float32)
        if call.same_rows:
            rows[:] = rows[0]
        if call.rising:
            # All rows along one direction, every query too: a row's score is its length.
            direction = random.choice([-1.0, 1.0], call.head_dim)
            self.queries[:] = direction
            lengths = np.linspace(max(0.0, -call.rising), max(0.0, call.rising), len(rows))
            rows = rows * 0.01 + direction * lengths[:, None]
            rows /= call.head_dim**0.5
        self.history, self.compressed = np.split(rows.astype(dtype), [call.end])
        self.sinks = np.linspace(-call.sink, call.sink, call.heads, dtype=np.float32)
        angles = random.uniform(0, 6, (call.count, 16))
        if call.rising:
            angles[:] = 0
        self.turns = np.ones((call.count, call.head_dim // 2), np.complex64)
        self.turns[:, -16:] = np.exp(1j * angles)
        self.chosen = self._choose(random) if call.top_k else None

    def _choose(self, random: np.random.Generator) -> npt.NDArray[np.int32]:
        """As a top-k does: rows that the query sees, ascending; the first rows of all if it sees too few."""
        call = self.call
        seen = [max((call.start + token + 1) // call.ratio, call.top_k) for token in range(call.count)]
        return np.array([np.sort(random.permutation(rows)[: call.top_k]) for rows in seen], np.int32)

    def seen(self, token: int) -> Array:
        """The rows that a token of the step sees, in order."""
        call, position = self.call, self.call.start + token
        raw = self.history[max(0, position - call.window + 1) : position + 1]
        visible = (position + 1) // call.ratio if call.ratio else 0
        numbers = np.arange(visible)
        if self.chosen is not None:
            numbers = self.chosen[token][self.chosen[token] < visible]
        return np.concatenate([raw, self.compressed[numbers]]).astype(np.float64)

    def expected(self, half: bool) -> Array:
        """`half`: queries are rounded to float16 once they are normed and turned."""
        wide = self.queries.astype(np.float64)
        normed = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + EPSILON)
        turned = _turn(normed, self.turns)
        if half:
            turned = turned.astype(np.float16).astype(np.float64)
        outputs = []
        for token, queries in enumerate(turned):
            rows = self.seen(token)
            scores = queries @ rows.T / np.sqrt(self.call.head_dim)
            largest = np.maximum(scores.max(axis=1), self.sinks)[:, None]
            weights = np.exp(scores - largest)
            total = weights.sum(axis=1, keepdims=True) + np.exp(self.sinks[:, None] - largest)
            outputs.append(weights @ rows / total)
        return _turn(np.array(outputs), self.turns.conj()).reshape(self.call.count, -1)

    def arguments(self) -> tuple[Any, ...]:
        call = self.call
        ring = np.full((call.ring_rows, call.head_dim), np.nan, self.history.dtype)
        for position in range(max(0, call.start - call.window + 1), call.start):
            ring[position % call.ring_rows] = self.history[position]
        compressed = None
        if call.ratio:
            beyond = np.full((3, call.head_dim), np.inf, self.history.dtype)
            compressed = mx.array(np.concatenate([self.compressed, beyond]))
        shape = replace(known_shapes.FLASH, head_count=call.heads, head_dim=call.head_dim, window=call.window)
        whole = Step(shape, call.start, call.count, call.ring_rows)
        return (
            mx.array(self.queries.reshape(call.count, -1)),
            mx.array(self.history[call.start :]),
            mx.array(ring),
            compressed,
            None if self.chosen is None else mx.array(self.chosen),
            mx.array(self.sinks),
            mx.array(self.turns.view(np.float32)),
            whole.numbers(call.ratio),
            whole,
        )


def _turn(values: Array, turns: npt.NDArray[np.complex64]) -> Array:
    pairs = values[..., ::2] + 1j * values[..., 1::2]
    turned = pairs * turns[:, None].astype(np.complex128)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(values.shape)


def _build(maker: Maker, call: Attention) -> attend.Attend:
    return attend.build(
        maker,
        heads=call.heads,
        head_dim=call.head_dim,
        window=call.window,
        ratio=call.ratio,
        top_k=call.top_k,
        epsilon=EPSILON,
        rounds=call.rounds,
    )


def _compare(found: mx.array, expected: Array, tolerance: float) -> None:
    # Against the largest of each token's outputs: a wrong small token must not hide behind a large one.
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    difference = np.abs(np.array(found, np.float64) - expected) / largest
    assert difference.max() <= tolerance, difference.max()


def _check(call: Attention, maker: Maker, tolerance: float | None = None) -> None:
    data = Data(call)
    arguments = data.arguments()
    expected = data.expected(call.half)
    _compare(_build(maker, call)(*arguments), expected, tolerance or (HALF if call.half else EXACT))


def _check_row_starts(maker: Maker) -> None:
    """Rows that begin beyond 2^31 numbers, from the function that all kernels address rows with."""
    kernel = Kernel(
        name="attend_row_start",
        body=Path(__file__).parent / "attend_row_start.metal",
        inputs=("rows",),
        outputs=("starts",),
        functions=("../attend/functions.metal",),
    )
    rows = np.array([0, 1, 4194303, 4194304, 8388608, 2**31 - 1, 5, 6], np.int32)
    launch = kernel.specialise(maker, D=512, ROW=mx.float16)
    starts = launch([mx.array(rows)], ((8,),), (mx.int64,), (8, 1, 1), (8, 1, 1))[0]
    np.testing.assert_array_equal(np.array(starts), rows.astype(np.int64) * 512)


# Dimensions that several calls share, as each costs a compilation: channels by fours and by twos, heads by
# twos and one by one, choices in Metal's constant space (7 of one token) and outside, and raw rows alone.
dense = Attention
chosen = partial(Attention, top_k=7)
raw_only = partial(Attention, ratio=0, heads=3, head_dim=192)
unrounded = partial(Attention, rounds=False, top_k=40, heads=2)
wide = partial(Attention, heads=44)

# What a mutant of the kernels has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "first token": partial(_check, raw_only(0, 1)),
    "raw rows before the window is full": partial(_check, raw_only(22, 1)),
    "raw rows of a full window": partial(_check, raw_only(61, 2)),
    "no compressed row yet": partial(_check, dense(2, 1)),
    "window just full": partial(_check, dense(23, 1)),
    "row about to be completed": partial(_check, dense(26, 1)),
    "window left behind, row just completed": partial(_check, dense(27, 1)),
    "ring wrapped": partial(_check, dense(80, 1)),
    "ring of the window's size": partial(_check, dense(81, 3, ring_rows=24)),
    "exactly two tiles": partial(_check, dense(159, 1)),
    "slices of several tiles": partial(_check, dense(4700, 1)),
    "slices of several tokens": partial(_check, dense(600, 7)),
    "few tokens from the first": partial(_check, dense(0, 8)),
    "tokens whose last slice has no rows": partial(_check, dense(33, 4)),
    "sinks that outweigh": partial(_check, dense(40, 1, sink=12.0)),
    "sharp scores": partial(_check, dense(40, 2, scale=30.0, sink=200.0)),
    "small queries": partial(_check, dense(40, 1, query=1e-3)),
    "rising scores": partial(_check, dense(150, 1, rising=60.0)),
    "falling scores": partial(_check, dense(150, 1, rising=-60.0)),
    "steeply falling scores": partial(_check, dense(4700, 1, rising=-2e4)),
    "chosen rows": partial(_check, chosen(150, 1)),
    "chosen rows, some unseen": partial(_check, chosen(24, 8)),
    "rows that are not rounded": partial(_check, unrounded(155, 9)),
    "more tokens than the ring has rows": partial(_check, unrounded(165, 26, ring_rows=24)),
    "prefill, raw rows only": partial(_check, raw_only(20, 9)),
    "prefill from the first token": partial(_check, dense(0, 28)),
    "prefill, ring wrapped": partial(_check, dense(70, 9)),
    "prefill, ring of the window's size": partial(_check, dense(95, 9, ring_rows=24)),
    "prefill, more tokens than the ring has rows": partial(_check, dense(95, 26, ring_rows=24)),
    "prefill, sinks that outweigh": partial(_check, dense(40, 9, sink=12.0)),
    "prefill, sharp scores": partial(_check, dense(40, 9, scale=30.0, sink=200.0)),
    "prefill, small queries": partial(_check, dense(40, 9, query=1e-3)),
    "prefill, rising scores": partial(_check, dense(100, 9, rising=60.0), tolerance=1e-5),
    "prefill, rising scores of all heads": partial(_check, wide(60, 9, rising=60.0), tolerance=1e-5),
    "prefill, falling scores": partial(_check, dense(100, 9, rising=-1500.0), tolerance=1e-5),
    "prefill, equal rows": partial(_check, dense(40, 9, same_rows=True, sink=3.0), tolerance=2e-6),
    "prefill, two groups of heads": partial(_check, wide(33, 9)),
    "prefill, chosen rows": partial(_check, chosen(90, 10)),
    "prefill, chosen rows, some unseen": partial(_check, chosen(24, 12)),
    "row offsets": _check_row_starts,
}
FLASH = partial(Attention, heads=64, head_dim=512, window=128, ring_rows=128)
PUBLISHED = {
    "one token, all rows": FLASH(2600, 1),
    "one token, chosen rows": FLASH(2600, 1, top_k=512),
    "prefill": FLASH(150, 9),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("call", PUBLISHED.values(), ids=PUBLISHED)
def test_shape_of_the_published_model(call: Attention, maker: Maker) -> None:
    _check(call, maker)


@pytest.mark.parametrize("head_dim", [80, 576])
def test_other_heads_are_refused(head_dim: int, maker: Maker) -> None:
    with pytest.raises(ValueError, match=f"not {head_dim}"):
        _build(maker, Attention(0, 1, head_dim=head_dim))


@pytest.mark.parametrize("number", range(len(list(attend.examples()))))
def test_examples(number: int, maker: Maker) -> None:
    example = list(attend.examples())[number]
    expected = np.array(example.fallback(*example.arguments))
    difference = np.abs(np.array(example.build(maker)(*example.arguments)) - expected).max()
    assert difference <= example.tolerance * np.abs(expected).max()


FALLBACK_CALLS = {
    "first token": raw_only(0, 1),
    "one token, all rows": dense(80, 1),
    "one token, chosen rows": chosen(150, 1),
    "blocks from the first token": dense(0, 40),
    "blocks, ring wrapped": dense(70, 40),
    "blocks, chosen rows, some unseen": chosen(24, 40),
    "not rounded": unrounded(155, 20),
}


@pytest.mark.parametrize("most_dense", [0, 8])
@pytest.mark.parametrize("largest_block", [1, 16, 128])
@pytest.mark.parametrize("call", FALLBACK_CALLS.values(), ids=FALLBACK_CALLS)
def test_fallback(
    call: Attention, largest_block: int, most_dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "_LARGEST_BLOCK", largest_block)
    monkeypatch.setattr(arrays, "_DENSE_ROWS_PER_CHOSEN", most_dense)
    data = Data(call)
    mixed = attend.fallback(
        *data.arguments(), heads=call.heads, head_dim=call.head_dim, ratio=call.ratio, epsilon=EPSILON
    )
    _compare(mixed, data.expected(half=False), 3e-6)
