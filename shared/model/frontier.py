"""The frontier of a compressed layer as device backends keep it: one ring of rows for all that unfinished
windows need. Its layout, and its way into saved states and back, on arrays of the host.

A row is [kv | score] of the attention compressor, then on ratio-4 layers those of the index compressor; the
row of position p stands in slot p mod the ring's slots. Spec: model §4.6, kv §2. Must not know: devices.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared.kv.payload import NO_SCORE, LayerState
from shared.model.shape import ModelShape

Array = npt.NDArray[np.float32]
_FIELDS = ("frontier_kv", "frontier_score", "index_frontier_kv", "index_frontier_score")


def frontier_slots(ratio: int) -> int:
    """Slots of a ring: the window in work and, where windows overlap, the one before it."""
    return 2 * ratio if ratio == 4 else ratio


def frontier_widths(shape: ModelShape, ratio: int) -> tuple[int, ...]:
    """Widths of a row's parts: kv, score, and on ratio-4 layers index kv, index score."""
    if ratio == 4:
        return (2 * shape.head_dim,) * 2 + (2 * shape.index_dim,) * 2
    return (shape.head_dim,) * 2 if ratio else ()


def empty_ring(shape: ModelShape, ratio: int) -> Array:
    """float32 [slots, width]. No window begun: nothing to weigh in, and a score that gives it no weight."""
    widths = frontier_widths(shape, ratio)
    row = np.concatenate([np.full(w, NO_SCORE if i % 2 else 0, np.float32) for i, w in enumerate(widths)])
    return np.tile(row, (frontier_slots(ratio), 1))


def store_ring(stored: LayerState, ring: Array, shape: ModelShape, ratio: int, position: int) -> None:
    """Give `stored` the frontier that `ring` holds after `position` tokens."""
    rows = empty_ring(shape, ratio)  # rows that hold nothing yet are stored as such, not as what stood there
    for to, slots in _in_order(ratio, position):
        rows[to] = ring[slots]
    parts = np.split(rows, np.cumsum(frontier_widths(shape, ratio))[:-1], axis=1)
    for field, part in zip(_FIELDS, parts, strict=False):
        setattr(stored, field, part)


def stored_ring(stored: LayerState, shape: ModelShape, ratio: int, position: int) -> Array:
    """The ring of a state stored after `position` tokens, as `store_ring` was given it."""
    parts = [part for field in _FIELDS if (part := getattr(stored, field)) is not None]
    rows, ring = np.concatenate(parts, axis=1), empty_ring(shape, ratio)
    for to, slots in _in_order(ratio, position):
        ring[slots] = rows[to]
    return ring


def _in_order(ratio: int, position: int) -> list[tuple[slice, list[int]]]:
    """Where the windows of a state's frontier lie in a stored one, and their slots in the ring, by position:
    the window before, if windows overlap, and the one in work, which comes last."""
    slots, start = frontier_slots(ratio), position // ratio * ratio
    first = slots - ratio
    windows = [(slice(first, first + position - start), range(start, position))]
    if first:
        windows.append((slice(0, ratio), range(start - ratio, start)))
    return [(to, [at % slots for at in positions]) for to, positions in windows]
