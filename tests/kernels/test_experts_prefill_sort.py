from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels import experts_prefill
from ds4mlx.kernels.experts_prefill import TOKENS
from ds4mlx.kernels.kernel import Kernel, Maker

_PROBE = Kernel(
    name="row_start_probe",
    body=Path(__file__).parent / "row_start_probe.metal",
    inputs=("rows", "widths"),
    outputs=("words",),
    functions=(str(Path(experts_prefill.__file__).parent / "row_start.metal"),),
)

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


def _row_starts(maker: Maker) -> None:
    """Rows whose places do not fit 31 or 32 bits."""
    rows = np.array([0, 1, 2**20, 2**31 - 1, 4096 * 6, 300_000, 7, 8, 9], np.int32)
    widths = np.array([7, 7168, 2**12, 2**30, 7168, 2**14, 1, 2, 3], np.int32)
    launch = _PROBE.specialise(maker)
    count = len(rows)
    (words,) = launch(
        [mx.array(rows), mx.array(widths)], [(count, 2)], [mx.uint32], (count, 1, 1), (32, 1, 1)
    )
    low, high = np.array(words).astype(np.int64).T
    np.testing.assert_array_equal(low + (high << 32), rows.astype(np.int64) * widths)


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
    "row starts": _row_starts,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)
