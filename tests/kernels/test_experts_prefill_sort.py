from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels import experts_prefill
from ds4mlx.kernels.experts_prefill import TOKENS
from ds4mlx.kernels.kernel import Maker
from tests.kernels.offsets import check_row_offset

Integers = npt.NDArray[np.int32]


def _sorts(maker: Maker, chosen: Integers, experts: int) -> None:
    """Pairs stand by expert and in their order otherwise; the lines of the tiles cover each pair once."""
    order, tiles = (
        np.array(out) for out in experts_prefill.build_sort(maker, experts=experts)(mx.array(chosen))
    )
    flat = chosen.reshape(-1)
    np.testing.assert_array_equal(order, np.argsort(flat, kind="stable"))
    start = 0
    lines: list[list[int]] = []
    for expert in range(experts):
        end = start + int((flat == expert).sum())
        first = len(lines)
        lines += [[expert, place, min(TOKENS, end - place)] for place in range(start, end, TOKENS)]
        room = end // TOKENS + expert + 1 - first
        lines += [[expert, start + TOKENS * line, 0] for line in range(len(lines) - first, room)]
        start = end
    np.testing.assert_array_equal(tiles, lines)


def _counts(maker: Maker, counts: list[int], used: int = 1) -> None:
    """So many pairs of each expert, mixed up."""
    chosen = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    _sorts(maker, np.random.default_rng(3).permutation(chosen).reshape(-1, used), len(counts))


def _one_expert(maker: Maker, pairs: int, expert: int, experts: int) -> None:
    _sorts(maker, np.full((pairs, 1), expert, np.int32), experts)


def _random(maker: Maker, tokens: int, used: int, experts: int) -> None:
    chosen = np.random.default_rng(tokens).integers(0, experts, (tokens, used), np.int32)
    _sorts(maker, chosen, experts)


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "counts around a tile": lambda maker: _counts(maker, [0, 1, 31, 32, 33, 0, 63, 64, 65, 0]),
    "starts around a tile": lambda maker: _counts(maker, [31, 1, 1, 31, 33, 31, 96, 95, 2]),
    "all to the first": lambda maker: _one_expert(maker, 96, 0, 3),
    "all to the last": lambda maker: _one_expert(maker, 97, 2, 3),
    "one pair": lambda maker: _one_expert(maker, 1, 1, 3),
    "one expert": lambda maker: _one_expert(maker, 70, 0, 1),
    "as many pairs as threads": lambda maker: _random(maker, 64, 4, 5),
    "a pair more than threads": lambda maker: _random(maker, 257, 1, 5),
    "rounds and a rest": lambda maker: _random(maker, 237, 3, 7),
    "more tiles of an expert than threads": lambda maker: _one_expert(maker, 32 * 300 + 5, 1, 2),
    "as many experts as PRO": lambda maker: _random(maker, 50, 6, 384),
    "row offsets": check_row_offset,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)
