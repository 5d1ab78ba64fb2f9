"""Pairs of token and slot, sorted by expert and cut into groups, in parallel.

Contract, for n tokens, each with K of E experts: chosen int32 [n, K] -> order int32 [n * K], the pairs by
expert and within an expert in order; groups int32 [3, most], each group's expert, first place in the order
and pairs, of which it has up to `group`; groups beyond the last have none. counts int32 [E] is scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, int32

COUNT = Kernel("count_pairs", Path(__file__).parent / "count.cu")
PLACE = Kernel("place_pairs", Path(__file__).parent / "place.cu")
THREADS = 256


def most_groups(pairs: int, experts: int, group: int) -> int:
    """Groups that so many pairs can make: full ones, and one that is not for each expert."""
    return pairs // group + min(pairs, experts)


def build(modules: Modules) -> Callable[..., None]:
    """-> call(chosen, counts, order, groups, group=)."""
    count = COUNT.specialise(modules, THREADS=THREADS)
    place = PLACE.specialise(modules, THREADS=THREADS)

    def call(chosen: Any, counts: Any, order: Any, groups: Any, *, group: int) -> None:
        pairs, experts = int32(chosen.size), counts.size
        count((experts,), THREADS, chosen, counts, pairs)
        arrays = (chosen, counts, order, groups[0], groups[1], groups[2])
        place((experts,), THREADS, *arrays, pairs, int32(group), int32(groups.shape[1]))

    return call
