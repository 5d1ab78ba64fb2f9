"""What the host decides about one step before anything is launched: how many rows its launches cover.

A step is `count` tokens. Must not know: weights, caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4cuda.scratch import MOST_SCORES
from shared.model.shape import ModelShape

_FIRST_END = 256  # launches for fewer positions would not be shorter


@dataclass(frozen=True, slots=True)
class Step:
    """Launches cover the positions before `end`. `chooses`: ratio-4 layers attend to the rows that the
    indexer chooses, because there are more than it may take. Launches depend on nothing else; where the step
    stands, kernels read on the device."""

    shape: ModelShape
    count: int
    end: int
    chooses: bool

    @classmethod
    def at(cls, shape: ModelShape, start: int, count: int, dense_index_rows: int = 0) -> Step:
        """The step of `count` tokens from position `start`.

        One of a single token covers some positions more (`covered_end`), so that few kinds of them exist,
        and does not choose among up to `dense_index_rows` compressed rows.
        """
        end = start + count
        dense = dense_index_rows if count == 1 else 0
        chooses = end // 4 > max(shape.index_top_k, dense)
        return cls(shape, count, covered_end(end) if count == 1 else end, chooses)

    def compressed_rows(self, ratio: int) -> int:
        """Compressed rows that the last query sees at most, if none are chosen."""
        return self.end // ratio if ratio else 0

    def attended_rows(self, ratio: int) -> int:
        """The most rows that a query attends to."""
        compressed = self.compressed_rows(ratio)
        if ratio == 4 and self.chooses:
            compressed = min(compressed, self.shape.index_top_k)
        return min(self.end, self.shape.window) + compressed

    def score_blocks(self) -> list[tuple[int, int]]:
        """First and last + 1 of the queries that are scored together, so that scores stay bounded."""
        each = max(1, MOST_SCORES // max(1, self.compressed_rows(4)))
        return [(first, min(first + each, self.count)) for first in range(0, self.count, each)]


def covered_end(end: int) -> int:
    """The end of the positions that a step of one token covers: 256, then 4, 5, 6 or 7 times a power of two.

    So at most a fifth of its launches is idle, and up to 2^20 positions there are 49 such ends.
    """
    quarter = 1 << max(0, (end - 1).bit_length() - 3)
    return max(_FIRST_END, -(-end // quarter) * quarter)
