"""A session's state between the device and the host: for payloads (spec: kv §2) and for marks.

Everything here copies bytes; nothing that it returns refers to a live buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.state import LayerCache, State, frontier_widths, read_ring, write_ring
from shared.kv.payload import NO_SCORE, LayerState

Array = npt.NDArray[np.float32]
_PARTS = ("frontier_kv", "frontier_score", "index_frontier_kv", "index_frontier_score")


@dataclass(frozen=True, slots=True)
class WindowCopy:
    """What later steps overwrite in one layer: its window's raw rows and its frontier."""

    raw: Array
    frontier: Array | None

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes + (0 if self.frontier is None else self.frontier.nbytes)


def copy_windows(state: State) -> list[WindowCopy]:
    return [
        WindowCopy(_window_rows(state, layer), None if layer.frontier is None else _host(layer.frontier))
        for layer in state.layers
    ]


def put_windows(state: State, copies: list[WindowCopy], position: int) -> None:
    """Make `state` end at `position` again; rows that were only appended still stand."""
    state.position = position
    for layer, copy in zip(state.layers, copies, strict=True):
        _put_raw(layer, copy.raw, position)
        if copy.frontier is not None:
            layer.frontier = mx.array(copy.frontier)


def to_host(state: State) -> list[LayerState]:
    """Every layer's state in payload form, float32."""
    return [_layer_to_host(state, layer) for layer in state.layers]


def from_host(state: State, layers: list[LayerState], position: int) -> None:
    """Take over a payload's layers as the state after `position` tokens."""
    state.reset()
    state.position = position
    for layer, stored in zip(state.layers, layers, strict=True):
        _put_raw(layer, stored.raw, position)
        _put_rows(layer.compressed, stored.compressed)
        _put_rows(layer.index_rows, stored.index_rows)
        if layer.frontier is not None:
            _put_frontier(layer, stored, position)
    mx.eval(state.arrays())


def _layer_to_host(state: State, layer: LayerCache) -> LayerState:
    stored = LayerState(raw=_window_rows(state, layer))
    if layer.compressed is None or layer.frontier is None:
        return stored
    rows = state.position // layer.ratio
    stored.compressed = _host(layer.compressed[:rows]).astype(np.float32)
    if layer.index_rows is not None:
        stored.index_rows = _host(layer.index_rows[:rows])
    ring = _host(layer.frontier)
    previous, begun = _frontier_slots(layer.ratio, state.position)
    column = 0
    for number, width in enumerate(frontier_widths(state.shape, layer.ratio)):
        # Rows that hold nothing yet are written as such, not as what once stood there.
        part = np.full((ring.shape[0], width), NO_SCORE if number % 2 else 0, np.float32)
        values = ring[:, column : column + width]
        part[: len(previous)] = values[previous]
        first = ring.shape[0] - layer.ratio
        part[first : first + len(begun)] = values[begun]
        setattr(stored, _PARTS[number], part)
        column += width
    return stored


def _put_frontier(layer: LayerCache, stored: LayerState, position: int) -> None:
    assert layer.frontier is not None
    parts = [getattr(stored, part) for part in _PARTS if getattr(stored, part) is not None]
    rows = np.concatenate(parts, axis=1)
    ring = _host(layer.frontier)
    previous, begun = _frontier_slots(layer.ratio, position)
    ring[previous] = rows[: len(previous)]
    first = ring.shape[0] - layer.ratio
    ring[begun] = rows[first : first + len(begun)]
    layer.frontier = mx.array(ring)


def _frontier_slots(ratio: int, position: int) -> tuple[list[int], list[int]]:
    """Ring slots, in token order, of the previous window (ratio 4 only) and of the one in work."""
    start = position // ratio * ratio
    if ratio != 4:
        return [], list(range(position - start))
    slots = 2 * ratio
    return [p % slots for p in range(start - ratio, start)], [p % slots for p in range(start, position)]


def _window_rows(state: State, layer: LayerCache) -> Array:
    count = min(state.position, state.shape.window, state.ring_rows)
    return _host(read_ring(layer.raw, state.position - count, count))


def _put_raw(layer: LayerCache, rows: Array, position: int) -> None:
    if len(rows):
        layer.raw = write_ring(layer.raw, position - len(rows), mx.array(rows))


def _put_rows(buffer: mx.array | None, rows: Array | None) -> None:
    if buffer is not None and rows is not None and len(rows):
        buffer[: len(rows)] = mx.array(rows).astype(buffer.dtype)


def _host(array: mx.array) -> npt.NDArray:
    """A copy in host memory."""
    return np.array(array)
