"""How far two token lists agree: the question behind every reuse of a live state. Knows nothing else."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of equal leading tokens. Compares halving slices, not token by token: prompts are long, and the
    inference thread asks."""
    left, right = list(left), list(right)
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
