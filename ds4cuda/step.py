"""What the host decides about one step before anything is launched: how many rows its queries can see.

A step is `count` tokens from position `start`. Must not know: weights, caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4cuda.scratch import MOST_SCORES
from shared.model.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Step:
    """`chooses`: ratio-4 layers attend to the rows that the indexer chooses, because there are more than
    it may take. Launches depend on nothing else; where the step stands, kernels read on the device."""

    shape: ModelShape
    start: int
    count: int
    chooses: bool

    @classmethod
    def at(cls, shape: ModelShape, start: int, count: int, dense_index_rows: int = 0) -> Step:
        """A step of one token does not choose among up to `dense_index_rows` compressed rows."""
        dense = dense_index_rows if count == 1 else 0
        return cls(shape, start, count, (start + count) // 4 > max(shape.index_top_k, dense))

    @property
    def end(self) -> int:
        return self.start + self.count

    def compressed_rows(self, ratio: int) -> int:
        """Compressed rows that the last query sees, if none are chosen."""
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
