"""What the host decides about one step before any array is built: positions, rotations, query blocks, masks.

A step is `count` tokens from position `start`: one when decoding, up to a prefill chunk otherwise. Made once
and shared by all layers. Must not know: weights, caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from shared.model.rope import rope_tables
from shared.model.shape import ModelShape

_LARGEST_BLOCK = 128
# Numbers in the largest score array of one block of queries: 256 MiB as float32.
_BLOCK_SCORES = 64 << 20


def rotate(x: mx.array, table: mx.array) -> mx.array:
    """Turn channel pairs of float32 [..., width] by complex64 [..., width / 2]. Spec: model §4.2."""
    return (x.view(mx.complex64) * table).view(mx.float32)


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """Neighbouring queries of a step that attend together.

    `first_key` is the position of the first raw row, `compressed` the number of compressed rows that the
    last query sees; masks are bool [queries, rows], None where every query sees every row.
    """

    first: int  # of the queries, within the step
    end: int
    first_key: int
    key_count: int
    raw_mask: mx.array | None
    compressed: int
    compressed_mask: mx.array | None


class Step:
    def __init__(self, shape: ModelShape, start: int, count: int) -> None:
        self.start = start
        self.count = count
        self._shape = shape
        self._rotations: dict[int, mx.array] = {}
        self._window_rotations: dict[int, mx.array] = {}
        self._blocks: dict[int, list[QueryBlock]] = {}

    @property
    def end(self) -> int:
        return self.start + self.count

    def rotation(self, ratio: int) -> mx.array:
        """Rotation at each position, complex64 [count, head dim / 2], of layers of this kind."""
        kind = min(ratio, 1)  # all compressed layers turn alike
        if kind not in self._rotations:
            positions = np.arange(self.start, self.end)
            self._rotations[kind] = self._complex_table(ratio, positions)
        return self._rotations[kind]

    def inverse_rotation(self, ratio: int) -> mx.array:
        kind = -1 - min(ratio, 1)
        if kind not in self._rotations:
            self._rotations[kind] = mx.conjugate(self.rotation(ratio))
        return self._rotations[kind]

    def completed_windows(self, ratio: int) -> int:
        """Compression windows that end in this step."""
        return self.end // ratio - self.start // ratio

    def window_rotation(self, ratio: int) -> mx.array:
        """Rotation of each completed window's row, which stands at the window's first token."""
        if ratio not in self._window_rotations:
            positions = np.arange(self.start // ratio, self.end // ratio) * ratio
            self._window_rotations[ratio] = self._complex_table(ratio, positions)
        return self._window_rotations[ratio]

    @cached_property
    def first_raw(self) -> int:
        """Position of the oldest raw row that this step's first query sees."""
        return max(0, self.start - self._shape.window + 1)

    def blocks(self, ratio: int) -> list[QueryBlock]:
        """The step's queries in blocks, for a layer of this compression ratio."""
        if ratio not in self._blocks:
            rows = self.end // ratio if ratio else 0
            heads = max(self._shape.head_count, self._shape.index_heads)
            size = _BLOCK_SCORES // (heads * (rows + 2 * self._shape.window))
            size = max(1, min(size, _LARGEST_BLOCK))
            self._blocks[ratio] = [
                self._block(ratio, first, min(first + size, self.count))
                for first in range(0, self.count, size)
            ]
        return self._blocks[ratio]

    def _block(self, ratio: int, first: int, end: int) -> QueryBlock:
        window = self._shape.window
        queries = np.arange(self.start + first, self.start + end)[:, None]
        first_key = max(0, self.start + first - window + 1)
        keys = np.arange(first_key, self.start + end)
        visible = (queries + 1) // ratio if ratio else np.zeros_like(queries)
        rows = int(visible[-1, 0])
        return QueryBlock(
            first=first,
            end=end,
            first_key=first_key,
            key_count=len(keys),
            raw_mask=_mask((keys <= queries) & (keys > queries - window)),
            compressed=rows,
            compressed_mask=_mask(np.arange(rows) < visible),
        )

    def _complex_table(self, ratio: int, positions: npt.NDArray[np.int64]) -> mx.array:
        """Rotations over the whole head: the channels before the rotary ones turn by nothing, exactly."""
        cosine, sine = rope_tables(self._shape, ratio, positions)
        table = np.ones((len(positions), self._shape.head_dim // 2), np.complex64)
        table[:, -cosine.shape[1] :] = cosine + 1j * sine
        return mx.array(table)


def _mask(visible: npt.NDArray[np.bool_]) -> mx.array | None:
    return None if visible.all() else mx.array(visible)
