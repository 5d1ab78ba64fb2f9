"""What a session remembers on the device: preallocated buffers, written in place between steps.

A step reads the buffers and hands its rows back; only compressed rows are appended while it runs, where no
reader of the state as it stands looks. So a step that was cancelled needs no cleaning up, and the last token
can be taken back by stepping the position back: the slots that it wrote held what no later token sees. No
method may keep a reference to a buffer: a second owner turns each in-place write into a copy of the buffer.
Must not know: weights, the forward pass, files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from ds4mlx.kernels import stack_rows
from shared.model.frontier import empty_ring, frontier_slots
from shared.model.memory import compressed_capacity
from shared.model.shape import ModelShape

# Rows of several layers [1, width] each -> [layers, 1, width].
StackRows = Callable[[list[mx.array]], mx.array]


def write_ring(ring: mx.array, layer: int, position: int, rows: mx.array) -> mx.array:
    """`ring` [layers, slots, width] with `rows` at the slots of `position` and on of one layer; of more rows
    than slots the last ones stay.

    In place when the caller's variable, which the result must replace, was the only reference.
    """
    slots, count = ring.shape[1], rows.shape[0]
    if count > slots:
        return write_ring(ring, layer, position + count - slots, rows[count - slots :])
    slot = position % slots
    before_end = min(count, slots - slot)
    ring[layer, slot : slot + before_end] = rows[:before_end]
    if before_end < count:
        ring[layer, : count - before_end] = rows[before_end:]
    return ring


def read_ring(ring: mx.array, position: int, count: int) -> mx.array:
    """Rows of one layer's ring [slots, width] from `position` on, oldest first: [count, width]."""
    slots = ring.shape[0]
    slot = position % slots
    if slot + count <= slots:
        return ring[slot : slot + count]
    return mx.concatenate([ring[slot:], ring[: slot + count - slots]], axis=0)


def last_rows(rows: mx.array, slots: int) -> mx.array:
    """Of a step's rows those that a ring of so many slots will hold, in memory of their own: a part of the
    rows would keep all of them, in every layer until the step is done."""
    count = rows.shape[0]
    return rows if count <= slots else mx.take(rows, mx.arange(count - slots, count), axis=0)


@dataclass(slots=True)
class CompressedRows:
    """Append-only rows of one compressed layer. D head dim, I indexer dim."""

    attention: mx.array  # [rows, D], float16 when rows are rounded to it, else float32
    index: mx.array | None  # float32 [rows, I], ratio-4 layers

    def arrays(self) -> list[mx.array]:
        return [self.attention] if self.index is None else [self.attention, self.index]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step of `count` tokens leaves behind: logits float32 [vocabulary] after its last token, and for
    each layer the rows [tokens, D] and frontier rows [tokens, width] of its last tokens, as many as the rings
    hold; no frontier rows on window-only layers."""

    count: int
    logits: mx.array
    rows: list[mx.array]
    frontiers: list[mx.array | None]

    def arrays(self) -> list[mx.array]:
        return [self.logits, *self.rows, *(rows for rows in self.frontiers if rows is not None)]


class State:
    """All layers' buffers for a context of `context` tokens, and how far they are filled.

    `raw` [layers, window + 1, D] is each layer's ring of the last rows, position p in slot p mod its rows.
    `frontiers` holds for each ratio a ring [layers of that ratio, k * r, width] of what unfinished windows
    need (k = 2 for r = 4, else 1): a row is [kv | score] of the attention compressor (k*D each), then, on
    ratio-4 layers, those of the index compressor (2*I each); position p stands in slot p mod (k*r).
    `stack` puts rows of several layers below one another in one launch.
    """

    def __init__(
        self,
        shape: ModelShape,
        context: int,
        row_dtype: mx.Dtype,
        stack: StackRows = stack_rows.fallback,
    ) -> None:
        self.shape = shape
        self.position = 0
        self._stack = stack
        ratios = shape.compress_ratios
        # One more than a window: the last token can be taken back, and a saved state still be whole.
        self.ring_rows = min(shape.window + 1, context)
        self.raw = mx.zeros((len(ratios), self.ring_rows, shape.head_dim), row_dtype)
        self.members = {r: [i for i, ratio in enumerate(ratios) if ratio == r] for r in set(ratios) if r}
        self._place = {layer: at for layers in self.members.values() for at, layer in enumerate(layers)}
        self.frontiers = {ratio: self._empty_frontiers(ratio) for ratio in self.members}
        self.compressed = [self._compressed(ratio, context, row_dtype) for ratio in ratios]
        mx.eval(self.arrays())

    def arrays(self) -> list[mx.array]:
        rows = [array for layer in self.compressed if layer is not None for array in layer.arrays()]
        return [self.raw, *self.frontiers.values(), *rows]

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def ring(self, layer: int) -> mx.array:
        """A layer's ring of raw rows [window + 1, D]."""
        return self.raw[layer : layer + 1].squeeze(0)  # a view; a plain index would gather

    def frontier(self, layer: int) -> mx.array:
        """A compressed layer's frontier ring [k * r, width]."""
        place = self._place[layer]
        return self.frontiers[self.shape.compress_ratios[layer]][place : place + 1].squeeze(0)

    def put_raw(self, layer: int, position: int, rows: mx.array) -> None:
        self.raw = write_ring(self.raw, layer, position, rows)

    def put_frontier(self, layer: int, rows: mx.array) -> None:
        """All slots of a compressed layer's frontier: [k * r, width]."""
        ratio = self.shape.compress_ratios[layer]
        self.frontiers[ratio][self._place[layer]] = rows

    def kept(self, layer: int, rows: mx.array, frontier: mx.array | None) -> tuple[mx.array, mx.array | None]:
        """Of a layer's rows [count, D] and frontier rows [count, width] in a step those that it leaves."""
        if frontier is not None:
            frontier = last_rows(frontier, frontier_slots(self.shape.compress_ratios[layer]))
        return last_rows(rows, self.ring_rows), frontier

    def advance(self, result: StepResult) -> None:
        """Move on to after the step. Logits are no part of the state: nothing of `result` is kept."""
        self.raw = self._written(self.raw, result.rows, result.count)
        for ratio, layers in self.members.items():
            rows = [found for layer in layers if (found := result.frontiers[layer]) is not None]
            self.frontiers[ratio] = self._written(self.frontiers[ratio], rows, result.count)
        self.position += result.count

    def reset(self) -> None:
        """Back to position 0. Only frontiers hold anything that a first token could see."""
        self.position = 0
        for ratio in self.members:
            self.frontiers[ratio] = self._empty_frontiers(ratio)

    def _written(self, rings: mx.array, rows: Sequence[mx.array], count: int) -> mx.array:
        """`rings` [layers, slots, width] with each layer's rows of the last of `count` tokens. A single
        token's rows are written for many layers at once: a launch for each layer would cost more than all of
        its bytes."""
        if count > 1:
            for layer, new in enumerate(rows):
                rings = write_ring(rings, layer, self.position + count - new.shape[0], new)
            return rings
        slot = self.position % rings.shape[1]
        for first in range(0, len(rows), stack_rows.LARGEST):
            group = list(rows[first : first + stack_rows.LARGEST])
            rings[first : first + len(group), slot : slot + 1] = self._stack(group)
        return rings

    def _compressed(self, ratio: int, context: int, row_dtype: mx.Dtype) -> CompressedRows | None:
        if not ratio:
            return None
        rows = compressed_capacity(context, ratio)
        index = mx.zeros((rows, self.shape.index_dim)) if ratio == 4 else None
        return CompressedRows(mx.zeros((rows, self.shape.head_dim), row_dtype), index)

    def _empty_frontiers(self, ratio: int) -> mx.array:
        return mx.array(np.stack([empty_ring(self.shape, ratio)] * len(self.members[ratio])))
