"""A session's state between the device and the host: for payloads (spec: kv §2) and for marks.

Everything here copies bytes; nothing that it returns refers to a live buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ds4cuda.device import Device
from ds4cuda.state import State
from shared.kv.payload import LayerState
from shared.model.frontier import store_ring, stored_ring

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WindowCopy:
    """What later steps overwrite: every layer's window of raw rows, as stored, oldest first, and all frontier
    rings by ratio."""

    raw: npt.NDArray[Any]  # [layers, rows, head dim]
    frontiers: dict[int, Array]

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes + sum(ring.nbytes for ring in self.frontiers.values())


def copy_windows(device: Device, state: State) -> WindowCopy:
    frontiers = {ratio: device.download(ring) for ratio, ring in state.frontiers.items()}
    return WindowCopy(_window_rows(device, state), frontiers)


def put_windows(device: Device, state: State, copy: WindowCopy, position: int) -> None:
    """Make `state` end at `position` again; rows that were only appended still stand."""
    state.position = position
    _put_window_rows(device, state, copy.raw)
    for ratio, ring in copy.frontiers.items():
        device.write(state.frontiers[ratio], ring)


def to_host(device: Device, state: State) -> list[LayerState]:
    """Every layer's state in payload form, float32."""
    windows = _widened(_window_rows(device, state))
    return [_layer_to_host(device, state, layer, raw) for layer, raw in enumerate(windows)]


def from_host(device: Device, state: State, layers: list[LayerState], position: int) -> None:
    """Take over a payload's layers as the state after `position` tokens."""
    state.reset()
    state.position = position
    _put_window_rows(device, state, _stored(state, np.stack([layer.raw for layer in layers])))
    for index, (ratio, stored) in enumerate(zip(state.shape.compress_ratios, layers, strict=True)):
        rows = state.compressed[index]
        if rows is None:
            continue
        _put_rows(device, state, rows.attention, stored.compressed)
        _put_rows(device, state, rows.index, stored.index_rows)
        ring = stored_ring(stored, state.shape, ratio, position)
        device.write(state.frontier(index), ring)


def _layer_to_host(device: Device, state: State, layer: int, raw: Array) -> LayerState:
    stored = LayerState(raw=raw)
    rows, ratio = state.compressed[layer], state.shape.compress_ratios[layer]
    if rows is None:
        return stored
    count = state.position // ratio
    stored.compressed = _widened(device.download(rows.attention[:count]))
    if rows.index is not None:
        stored.index_rows = device.download(rows.index[:count])
    ring = device.download(state.frontier(layer))
    store_ring(stored, ring, state.shape, ratio, state.position)
    return stored


def _window_slots(state: State, count: int) -> list[slice]:
    """Where the last `count` positions stand in a ring, oldest first: one piece, or two."""
    slots = state.raw.shape[1]
    first = (state.position - count) % slots
    if first + count <= slots:
        return [slice(first, first + count)]
    return [slice(first, slots), slice(0, first + count - slots)]


def _window_rows(device: Device, state: State) -> npt.NDArray[Any]:
    pieces = _window_slots(state, min(state.position, state.shape.window))
    layers = [np.concatenate([device.download(ring[piece]) for piece in pieces]) for ring in state.raw]
    return np.stack(layers)


def _put_window_rows(device: Device, state: State, rows: npt.NDArray[Any]) -> None:
    """`rows` [layers, count, head dim] of the positions before the state's."""
    for layer, own in enumerate(rows):
        first = 0
        for piece in _window_slots(state, len(own)):
            count = piece.stop - piece.start
            device.write(state.raw[layer][piece], own[first : first + count])
            first += count


def _put_rows(device: Device, state: State, buffer: Any, rows: Array | None) -> None:
    if buffer is not None and rows is not None and len(rows):
        stored = rows if buffer.dtype == np.float32 else _stored(state, rows)
        device.write(buffer[: len(rows)], stored)


def _widened(rows: npt.NDArray[Any]) -> Array:
    return rows if rows.dtype == np.float32 else rows.view(np.float16).astype(np.float32)


def _stored(state: State, rows: Array) -> npt.NDArray[Any]:
    """Rows as the rings hold them; other writers keep them in float32."""
    return rows if state.row_dtype is np.float32 else rows.astype(np.float16).view(np.uint16)
