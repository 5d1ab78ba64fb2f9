"""Attention of many tokens on tensor cores: to the same tolerance as with floats."""

from __future__ import annotations

import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import tile_attend
from tests.cuda.test_attend import run


@pytest.mark.parametrize(
    ("ratio", "start", "count", "heads", "chooses"),
    [
        (0, 60, 6, 18, False),  # more heads than a block takes
        (4, 0, 5, 2, False),  # fewer rows than a tile
        (4, 98, 2, 2, False),  # the first token has no row left for its second split
        (4, 20, 9, 2, True),
    ],
)
def test_attention(device: Device, ratio: int, start: int, count: int, heads: int, chooses: bool) -> None:
    run(
        device, rounds=True, ratio=ratio, start=start, count=count, heads=heads, chooses=chooses,
        build=tile_attend.build,
    )  # fmt: skip


@pytest.mark.parametrize("loud", [1, 40])
def test_one_row_may_outweigh_all_others(device: Device, loud: int) -> None:
    run(
        device, rounds=True, ratio=4, start=160, count=2, heads=2, chooses=False, loud=loud,
        build=tile_attend.build,
    )  # fmt: skip


@pytest.mark.parametrize(("head_dim", "rounds"), [(192, True), (128, False)])
def test_other_rows_are_refused(device: Device, head_dim: int, rounds: bool) -> None:
    with pytest.raises(ValueError, match="multiple of 128"):
        tile_attend.build(
            device, heads=1, head_dim=head_dim, rotary_dim=32, window=8, ratio=0, top_k=0, epsilon=1e-6,
            rounds=rounds,
        )  # fmt: skip
