"""The attention kernels against a float64 transcription. Whatever a query must not see is NaN, infinite or,
where another query of the step sees it, unlike everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels import attend
from ds4mlx.kernels.kernel import Kernel, Maker
from ds4mlx.step import Step
from shared.model.known_shapes import FLASH

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
    head_dim: int = 64
    window: int = 24
    ring_rows: int = 37
    rounds: bool = True
    scale: float = 1.0  # of the rows
    sink: float = 1.0  # largest size of a sink
    same_rows: bool = False
    rising: float = 0.0  # how far scores rise over the rows

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
        self.queries = random.standard_normal((call.count, call.heads, call.head_dim)).astype(np.float32) * 3
        if call.same_rows:
            rows[:] = rows[0]
        if call.rising:
            # All rows along one direction, every query too: a row's score is its length.
            direction = random.choice([-1.0, 1.0], call.head_dim)
            self.queries[:] = direction
            rows = rows * 0.01 + direction * np.linspace(0, call.rising, len(rows))[:, None]
            rows /= call.head_dim**0.5
        self.history, self.compressed = np.split(rows.astype(dtype), [call.end])
        self.sinks = (random.uniform(-1, 1, call.heads) * call.sink).astype(np.float32)
        angles = random.uniform(0, 6, (call.count, 16))
        if call.rising:
            angles[:] = 0
        self.turns = np.ones((call.count, call.head_dim // 2), np.complex64)
        self.turns[:, -16:] = np.exp(1j * angles)
        self.chosen = self._choose(random, visible) if call.top_k else None

    def _choose(self, random: np.random.Generator, visible: int) -> npt.NDArray[np.int32]:
        """Rows from all that any query sees, ascending: some queries do not see all of theirs."""
        picks = [
            np.sort(random.permutation(visible)[: self.call.top_k]) for _ in range(self.call.count)
        ]
        return np.array(picks, np.int32)

    def seen(self, token: int) -> Array:
        """The rows that a token of the step sees, in order."""
        call, position = self.call, self.call.start + token
        raw = self.history[max(0, position - call.window + 1) : position + 1]
        visible = (position + 1) // call.ratio if call.ratio else 0
        numbers = np.arange(visible)
        if self.chosen is not None:
            numbers = self.chosen[token][self.chosen[token] < visible]
        return np.concatenate([raw, self.compressed[numbers]]).astype(np.float64)

    def expected(self) -> Array:
        wide = self.queries.astype(np.float64)
        normed = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + EPSILON)
        turned = _turn(normed, self.turns)
        if self.call.half:
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

    def arguments(self) -> tuple[mx.array | Step | None, ...]:
        call = self.call
        ring = np.full((call.ring_rows, call.head_dim), np.nan, self.history.dtype)
        for position in range(max(0, call.start - call.window + 1), call.start):
            ring[position % call.ring_rows] = self.history[position]
        compressed = None
        if call.ratio:
            beyond = np.full((3, call.head_dim), np.inf, self.history.dtype)
            compressed = mx.array(np.concatenate([self.compressed, beyond]))
        shape = replace(FLASH, head_count=call.heads, head_dim=call.head_dim, window=call.window)
        step = Step(shape, call.start, call.count, call.ring_rows)
        return (
            mx.array(self.queries.reshape(call.count, -1)),
            mx.array(self.history[call.start :]),
            mx.array(ring),
            compressed,
            None if self.chosen is None else mx.array(self.chosen),
            mx.array(self.sinks),
            mx.array(self.turns.view(np.float32)),
            step.numbers(call.ratio),
            step,
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
    _compare(
        _build(maker, call)(*arguments), data.expected(), tolerance or (HALF if call.half else EXACT)
    )


def _probe(maker: Maker) -> None:
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


# What a mutant of the kernels has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "first token": partial(_check, Attention(0, 1, ratio=0)),
    "window not yet full": partial(_check, Attention(22, 1)),
    "window just full": partial(_check, Attention(23, 1)),
    "window left behind, row just completed": partial(_check, Attention(27, 1)),
    "row about to be completed": partial(_check, Attention(26, 1)),
    "no compressed row yet": partial(_check, Attention(2, 1)),
    "ring wrapped": partial(_check, Attention(80, 1)),
    "slices of several tiles": partial(_check, Attention(4700, 1, heads=2)),
    "chosen rows": partial(_check, Attention(200, 1, top_k=40, heads=6, head_dim=128)),
    "few chosen rows": partial(_check, Attention(150, 1, top_k=5, heads=2)),
    "odd heads and pairs of channels": partial(_check, Attention(60, 1, heads=3, head_dim=192)),
    "few tokens, some rows unseen": partial(_check, Attention(45, 8, top_k=9, heads=2)),
    "few tokens from the first": partial(_check, Attention(0, 7, ratio=2)),
    "few tokens, slices without rows": partial(_check, Attention(29, 4, window=32, ratio=16)),
    "rows that are not rounded": partial(_check, Attention(30, 11, rounds=False, top_k=6)),
    "sinks that outweigh": partial(_check, Attention(40, 1, sink=12.0)),
    "sharp scores": partial(_check, Attention(40, 2, scale=30.0, sink=200.0), tolerance=2e-5),
    "rising scores": partial(_check, Attention(150, 1, rising=60.0)),
    "prefill from the first token": partial(_check, Attention(0, 28, heads=3)),
    "prefill, raw rows only": partial(_check, Attention(20, 9, ratio=0)),
    "prefill, ring wrapped": partial(_check, Attention(70, 9, head_dim=128)),
    "prefill, two groups of heads": partial(_check, Attention(33, 9, heads=44, ratio=8)),
    "prefill, chosen rows": partial(_check, Attention(90, 10, top_k=21, heads=5, head_dim=128)),
    "prefill, chosen rows unseen": partial(_check, Attention(20, 12, top_k=7)),
    "prefill, sinks that outweigh": partial(_check, Attention(40, 9, sink=12.0)),
    "prefill, rising scores": partial(_check, Attention(100, 9, rising=60.0)),
    "prefill, equal rows": partial(_check, Attention(40, 9, same_rows=True, sink=3.0), tolerance=1e-3),
    "row offsets": _probe,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)
