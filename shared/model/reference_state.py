"""The memory of one timeline in the NumPy reference: window rows, compressed rows and frontiers per layer.

A step never changes what is live: it hands over a `LayerStep` for every layer, and `commit` takes them over
all at once. Row counts follow from the position, so rows past it are scratch space.
Must not know: weights, the forward pass, sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shared.kv.payload import NO_SCORE, LayerState
from shared.model.memory import compressed_capacity
from shared.model.shape import ModelShape

Array = npt.NDArray[np.float32]


class Frontier(NamedTuple):
    """Compressor inputs of the window in progress (and, for ratio 4, of the one before it). Replaced as a
    whole, never written in place. Both float32 [halves * ratio, halves * width]."""

    kv: Array
    score: Array


class LayerStep(NamedTuple):
    """What one step adds to a layer: raw rows [n, head_dim] and the frontiers after it. The compressed rows
    already lie behind the live ones."""

    raw: Array
    frontier: Frontier | None
    index_frontier: Frontier | None


class _LayerPast(NamedTuple):
    """A layer's window and frontiers at some position."""

    raw: Array
    frontier: Frontier | None
    index_frontier: Frontier | None

    @property
    def nbytes(self) -> int:
        frontiers = [frontier for frontier in (self.frontier, self.index_frontier) if frontier is not None]
        return self.raw.nbytes + sum(array.nbytes for frontier in frontiers for array in frontier)


@dataclass(frozen=True, slots=True)
class Past:
    """All that is needed, beside the append-only rows, to return to `position`."""

    position: int
    layers: tuple[_LayerPast, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the copies. A frontier counts even while the live state still shares it: it will be
        replaced there, not here."""
        return sum(layer.nbytes for layer in self.layers)


class LayerCache:
    """One layer's buffers. `raw` is a ring: position p lies in row p mod its length."""

    def __init__(self, shape: ModelShape, ratio: int, context: int) -> None:
        capacity = compressed_capacity(context, ratio)
        self.ratio = ratio
        self.window = shape.window
        self.raw = np.zeros((max(1, min(shape.window, context)), shape.head_dim), np.float32)
        self.compressed = np.zeros((capacity, shape.head_dim), np.float32)
        self.index_rows = np.zeros((capacity if ratio == 4 else 0, shape.index_dim), np.float32)
        self.frontier = empty_frontier(ratio, shape.head_dim) if ratio else None
        self.index_frontier = empty_frontier(4, shape.index_dim) if ratio == 4 else None

    def count(self, position: int) -> int:
        """Compressed rows that exist after `position` tokens."""
        return position // self.ratio if self.ratio else 0

    def recent(self, position: int) -> Array:
        """Rows of the last positions before `position` that its query still sees, oldest first."""
        return self._ring(position, self.window - 1)

    def append(self, buffer: Array, position: int, rows: Array) -> Array:
        """Put compressed `rows` behind those of `position`; returns live and new rows together, a view."""
        start = self.count(position)
        end = start + len(rows)
        buffer[start:end] = rows
        return buffer[:end]

    def commit(self, position: int, step: LayerStep) -> None:
        """Take over a step that began at `position`."""
        self.write_raw(position, step.raw)
        self.frontier = step.frontier
        self.index_frontier = step.index_frontier

    def write_raw(self, position: int, rows: Array) -> None:
        kept = rows[-len(self.raw) :]
        first = position + len(rows) - len(kept)
        self.raw[np.arange(first, first + len(kept)) % len(self.raw)] = kept

    def export(self, position: int) -> LayerState:
        """The state as it is saved, sharing memory with the buffers."""
        state = LayerState(self._ring(position, len(self.raw)))
        if self.frontier is not None:
            state.compressed = self.compressed[: self.count(position)]
            state.frontier_kv, state.frontier_score = self.frontier
        if self.index_frontier is not None:
            state.index_rows = self.index_rows[: self.count(position)]
            state.index_frontier_kv, state.index_frontier_score = self.index_frontier
        return state

    def adopt(self, position: int, state: LayerState) -> None:
        self.write_raw(position - len(state.raw), state.raw)
        if state.compressed is not None:
            self.compressed[: len(state.compressed)] = state.compressed
        if state.index_rows is not None:
            self.index_rows[: len(state.index_rows)] = state.index_rows
        if state.frontier_kv is not None and state.frontier_score is not None:
            self.frontier = Frontier(state.frontier_kv, state.frontier_score)
        if state.index_frontier_kv is not None and state.index_frontier_score is not None:
            self.index_frontier = Frontier(state.index_frontier_kv, state.index_frontier_score)

    def _ring(self, position: int, rows: int) -> Array:
        first = max(0, position - rows)
        return self.raw[np.arange(first, position) % len(self.raw)]


class ReferenceState:
    """The caches of all layers after `position` tokens."""

    def __init__(self, shape: ModelShape, context: int) -> None:
        self._shape = shape
        self._context = context
        self.reset()

    def reset(self) -> None:
        """Forget everything. The buffers are new, so that an old step cannot reach them."""
        self.position = 0
        self.layers = [LayerCache(self._shape, ratio, self._context) for ratio in self._shape.compress_ratios]

    def commit(self, steps: Sequence[LayerStep], tokens: int) -> None:
        """Take over one step of `tokens` tokens."""
        for cache, step in zip(self.layers, steps, strict=True):
            cache.commit(self.position, step)
        self.position += tokens

    def past(self) -> Past:
        """A copy of what later steps overwrite."""
        layers = (_LayerPast(cache.raw.copy(), cache.frontier, cache.index_frontier) for cache in self.layers)
        return Past(self.position, tuple(layers))

    def return_to(self, past: Past) -> None:
        """Go back to `past`, whose compressed rows must still be the ones that lie in the buffers."""
        self.position = past.position
        for cache, before in zip(self.layers, past.layers, strict=True):
            cache.raw[:] = before.raw
            cache.frontier = before.frontier
            cache.index_frontier = before.index_frontier

    def export(self) -> list[LayerState]:
        return [cache.export(self.position) for cache in self.layers]

    def adopt(self, position: int, states: Sequence[LayerState]) -> None:
        """Replace everything by a saved state of `position` tokens."""
        self.reset()
        for cache, state in zip(self.layers, states, strict=True):
            cache.adopt(position, state)
        self.position = position


def empty_frontier(ratio: int, width: int) -> Frontier:
    """No window begun: values 0, every score the one that weighs nothing."""
    halves = 2 if ratio == 4 else 1
    size = (halves * ratio, halves * width)
    return Frontier(np.zeros(size, np.float32), np.full(size, NO_SCORE, np.float32))
