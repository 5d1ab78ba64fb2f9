"""What a session remembers on the device: preallocated buffers, written in place.

Every step writes only rows that no later reader needs before they are written again: the raw ring is longer
than the window, and the frontier of a ratio-4 layer is a ring of two windows. So the last token can be taken
back by stepping the position back; nothing has to be saved. No method may keep a reference to a buffer: a
second owner turns each in-place write into a copy of the whole buffer.
Must not know: weights, the forward pass, files.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from shared.kv.payload import NO_SCORE
from shared.model.memory import compressed_capacity, raw_capacity
from shared.model.shape import ModelShape


def write_ring(ring: mx.array, position: int, rows: mx.array) -> mx.array:
    """`ring` with `rows` at the slots of `position` and on; of more rows than slots the last ones stay.

    In place when the caller's variable, which the result must replace, was the only reference.
    """
    slots, count = ring.shape[0], rows.shape[0]
    if count > slots:
        return write_ring(ring, position + count - slots, rows[count - slots :])
    slot = position % slots
    before_end = min(count, slots - slot)
    ring[slot : slot + before_end] = rows[:before_end]
    if before_end < count:
        ring[: count - before_end] = rows[before_end:]
    return ring


def read_ring(ring: mx.array, position: int, count: int) -> mx.array:
    """Rows of positions `position` and on, oldest first: [count, width]."""
    slots = ring.shape[0]
    slot = position % slots
    if slot + count <= slots:
        return ring[slot : slot + count]
    return mx.concatenate([ring[slot:], ring[: slot + count - slots]], axis=0)


@dataclass(slots=True)
class LayerCache:
    """Buffers of one layer. D head dim, I indexer dim, r ratio, k = 2 for r = 4, else 1.

    A frontier row holds [kv | score] of the attention compressor (k*D each), then, on ratio-4 layers, those
    of the index compressor (2*I each); the token at position p stands in slot p mod (k*r).
    """

    ratio: int
    raw: mx.array  # float32 [ring rows, D], position p in slot p mod ring rows
    compressed: mx.array | None  # [rows, D], float16 when rows are rounded to it, else float32
    frontier: mx.array | None  # float32 [k*r, 2*k*D (+ 4*I)]
    index_rows: mx.array | None  # float32 [rows, I]

    def arrays(self) -> list[mx.array]:
        every = (self.raw, self.compressed, self.frontier, self.index_rows)
        return [array for array in every if array is not None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step of `count` tokens leaves behind: logits float32 [vocabulary] after its last token, and for
    each layer the tokens' frontier rows [count, width], None on window-only layers."""

    count: int
    logits: mx.array
    frontiers: list[mx.array | None]

    def arrays(self) -> list[mx.array]:
        return [self.logits, *(rows for rows in self.frontiers if rows is not None)]


class State:
    """All layers' buffers for a context of `context` tokens, and how far they are filled."""

    def __init__(self, shape: ModelShape, context: int, prefill_chunk: int, row_dtype: mx.Dtype) -> None:
        self.shape = shape
        self.position = 0
        self.ring_rows = raw_capacity(context, prefill_chunk, shape.window)
        self.layers = [self._layer(ratio, context, row_dtype) for ratio in shape.compress_ratios]
        mx.eval(self.arrays())
        # A chunk must leave in the ring what its first query still sees; a ring for all never wraps.
        whole = self.ring_rows >= context
        self.largest_step = context if whole else self.ring_rows - shape.window + 1

    def arrays(self) -> list[mx.array]:
        return [array for layer in self.layers for array in layer.arrays()]

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def advance(self, result: StepResult) -> None:
        """Move on to after the step. Logits are no part of the state: nothing of `result` is kept."""
        for layer, rows in zip(self.layers, result.frontiers, strict=True):
            if layer.frontier is not None and rows is not None:
                layer.frontier = write_ring(layer.frontier, self.position, rows)
        self.position += result.count

    def reset(self) -> None:
        """Back to position 0. Only frontiers hold anything that a first token could see."""
        self.position = 0
        for layer in self.layers:
            layer.frontier = self._empty_frontier(layer.ratio)

    def _layer(self, ratio: int, context: int, row_dtype: mx.Dtype) -> LayerCache:
        shape, rows = self.shape, compressed_capacity(context, ratio)
        return LayerCache(
            ratio=ratio,
            raw=mx.zeros((self.ring_rows, shape.head_dim)),
            compressed=mx.zeros((rows, shape.head_dim), row_dtype) if ratio else None,
            frontier=self._empty_frontier(ratio),
            index_rows=mx.zeros((rows, shape.index_dim)) if ratio == 4 else None,
        )

    def _empty_frontier(self, ratio: int) -> mx.array | None:
        """No previous window: nothing to weigh in, and a score that gives it no weight."""
        if not ratio:
            return None
        halves = 2 if ratio == 4 else 1
        widths = frontier_widths(self.shape, ratio)
        row = np.concatenate([np.full(w, NO_SCORE if i % 2 else 0, np.float32) for i, w in enumerate(widths)])
        return mx.array(np.tile(row, (halves * ratio, 1)))


def frontier_widths(shape: ModelShape, ratio: int) -> tuple[int, ...]:
    """Widths of a frontier row's parts: kv, score, and on ratio-4 layers index kv, index score."""
    if ratio == 4:
        return (2 * shape.head_dim,) * 2 + (2 * shape.index_dim,) * 2
    return (shape.head_dim,) * 2
