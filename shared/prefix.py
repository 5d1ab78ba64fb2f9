"""How far two timelines agree: the question behind every reuse of a live state. Knows nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Timeline = TypeVar("_Timeline", list[int], bytes)


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of equal leading tokens."""
    return _agreement(list(left), list(right))


def common_bytes(left: bytes, right: bytes) -> int:
    """Number of equal leading bytes."""
    return _agreement(left, right)


def _agreement(left: _Timeline, right: _Timeline) -> int:
    """Compares halving slices, not item by item: prompts are long, and the inference thread asks."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
