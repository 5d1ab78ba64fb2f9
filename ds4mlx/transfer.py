"""A session's state between the device and the host: for payloads (spec: kv §2) and for marks.

Everything here copies bytes; nothing that it returns refers to a live buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.state import State, read_ring
from shared.kv.payload import LayerState
from shared.model.frontier import store_ring, stored_ring

Array = npt.NDArray[np.float32]


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
        WindowCopy(_window_rows(state, layer), _host(state.frontier(layer)) if ratio else None)
        for layer, ratio in enumerate(state.shape.compress_ratios)
    ]


def put_windows(state: State, copies: list[WindowCopy], position: int) -> None:
    """Make `state` end at `position` again; rows that were only appended still stand."""
    state.position = position
    for layer, copy in enumerate(copies):
        _put_raw(state, layer, copy.raw)
        if copy.frontier is not None:
            state.put_frontier(layer, mx.array(copy.frontier))


def to_host(state: State) -> list[LayerState]:
    """Every layer's state in payload form, float32."""
    return [_layer_to_host(state, layer) for layer in range(state.shape.layer_count)]


def from_host(state: State, layers: list[LayerState], position: int) -> None:
    """Take over a payload's layers as the state after `position` tokens."""
    state.reset()
    state.position = position
    for layer, (ratio, stored) in enumerate(zip(state.shape.compress_ratios, layers, strict=True)):
        _put_raw(state, layer, stored.raw)
        compressed = state.compressed[layer]
        if compressed is not None:
            _put_rows(compressed.attention, stored.compressed)
            _put_rows(compressed.index, stored.index_rows)
            ring = stored_ring(stored, state.shape, ratio, position)
            state.put_frontier(layer, mx.array(ring))
    mx.eval(state.arrays())


def _layer_to_host(state: State, layer: int) -> LayerState:
    stored = LayerState(raw=_window_rows(state, layer))
    compressed, ratio = state.compressed[layer], state.shape.compress_ratios[layer]
    if compressed is None:
        return stored
    rows = state.position // ratio
    stored.compressed = _host(compressed.attention[:rows]).astype(np.float32)
    if compressed.index is not None:
        stored.index_rows = _host(compressed.index[:rows])
    ring = _host(state.frontier(layer))
    store_ring(stored, ring, state.shape, ratio, state.position)
    return stored


def _window_rows(state: State, layer: int) -> Array:
    count = min(state.position, state.shape.window)
    rows = _host(read_ring(state.ring(layer), state.position - count, count))
    return rows.astype(np.float32)


def _put_raw(state: State, layer: int, rows: Array) -> None:
    """Rows of the positions before the state's."""
    if len(rows):
        first = state.position - len(rows)
        state.put_raw(layer, first, mx.array(rows).astype(state.raw.dtype))


def _put_rows(buffer: mx.array | None, rows: Array | None) -> None:
    if buffer is not None and rows is not None and len(rows):
        buffer[: len(rows)] = mx.array(rows).astype(buffer.dtype)


def _host(array: mx.array) -> npt.NDArray:
    """A copy in host memory."""
    return np.array(array)
