"""By how much an array that a kernel computed differs from the one that its fallback did.

Must not know: which kernel, how much it may differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np


class Incomparable(ValueError):
    """Shapes, dtypes, or the places of infinities and NaN differ: says how, in part of a line."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest one between two numbers in the same place, and the largest number expected; of finite ones,
    0 where there are none."""

    apart: float
    largest: float

    def allowed(self, tolerance: float) -> float:
        """What may be apart; `tolerance` is a part of the largest expected number, 0 for bit-equal."""
        return tolerance * self.largest

    @property
    def relative(self) -> float:
        """The difference as a part of the largest expected number, as it is where that is 0."""
        return self.apart / self.largest if self.largest else self.apart


def difference_of(found: mx.array, expected: mx.array) -> Difference:
    """Raises Incomparable."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise Incomparable(f"{found.dtype} {found.shape}, not {expected.dtype} {expected.shape}")
    one, other = (np.array(array.astype(mx.float32), np.float64) for array in (found, expected))
    finite = np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True) or not np.isfinite(one[finite]).all():
        raise Incomparable("infinities or NaN where the fallback has none, or the other way round")
    return Difference(
        apart=float(np.abs(one[finite] - other[finite]).max(initial=0.0)),
        largest=float(np.abs(other[finite]).max(initial=0.0)),
    )
