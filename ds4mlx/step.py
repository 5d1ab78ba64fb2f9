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
# Numbers in the largest array of scores of one block of queries: 256 MiB as float32.
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
    def __init__(self, shape: ModelShape, start: int, count: int, ring_rows: int) -> None:
        """`ring_rows`: rows of a layer's ring of raw keys."""
        self.start = start
        self.count = count
        self._ring_rows = ring_rows
        self._shape = shape
        self._rotations: dict[int, mx.array] = {}
        self._window_rotations: dict[int, mx.array] = {}
        self._numbers: dict[int, mx.array] = {}
        self._blocks: dict[int, list[QueryBlock]] = {}

    @property
    def end(self) -> int:
        return self.start + self.count

    def rotation(self, ratio: int) -> mx.array:
        """Cosine and sine of each channel pair at each position, float32 [count, head dim], of layers of this
        kind; a complex64 number each for `rotate`. Pairs that do not turn hold (1, 0)."""
        kind = min(ratio, 1)  # all compressed layers turn alike
        if kind not in self._rotations:
            positions = np.arange(self.start, self.end)
            self._rotations[kind] = self._table(ratio, positions)
        return self._rotations[kind]

    def completed_windows(self, ratio: int) -> int:
        """Compression windows that end in this step."""
        return self.end // ratio - self.start // ratio

    def window_rotation(self, ratio: int) -> mx.array:
        """Rotation of each completed window's row, which stands at the window's first token: float32
        [windows, head dim]."""
        if ratio not in self._window_rotations:
            positions = np.arange(self.start // ratio, self.end // ratio) * ratio
            self._window_rotations[ratio] = self._table(ratio, positions)
        return self._window_rotations[ratio]

    def numbers(self, ratio: int) -> mx.array:
        """What kernels have to know of the step, int32 [8]: its position, its tokens, the rows of the rings
        of raw keys, the compressed rows of this ratio that exist after it, and zeros."""
        if ratio not in self._numbers:
            self._numbers[ratio] = self._described(self.start, self.count, ratio)
        return self._numbers[ratio]

    def index_blocks(self) -> list[tuple[int, int, mx.array]]:
        """The step's queries in blocks whose scores over all compressed rows stay small: first and last + 1
        within the step, and the `numbers` of the block taken alone, but with the rows of the whole step."""
        size = max(1, _BLOCK_SCORES // max(1, self.end // 4))
        if size >= self.count:
            return [(0, self.count, self.numbers(4))]
        ends = [(first, min(first + size, self.count)) for first in range(0, self.count, size)]
        return [(first, end, self._described(self.start + first, end - first, 4)) for first, end in ends]

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

    def _described(self, start: int, count: int, ratio: int) -> mx.array:
        rows = self.end // ratio if ratio else 0
        return mx.array([start, count, self._ring_rows, rows, 0, 0, 0, 0], mx.int32)

    def _table(self, ratio: int, positions: npt.NDArray[np.int64]) -> mx.array:
        """Rotations over the whole head: the channels before the rotary ones turn by nothing, exactly."""
        cosine, sine = rope_tables(self._shape, ratio, positions)
        table = np.ones((len(positions), self._shape.head_dim // 2), np.complex64)
        table[:, -cosine.shape[1] :] = cosine + 1j * sine
        return mx.array(table.view(np.float32))


def _mask(visible: npt.NDArray[np.bool_]) -> mx.array | None:
    return None if visible.all() else mx.array(visible)
