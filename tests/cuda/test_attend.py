"""Attention over a ring of raw rows and compressed ones, all or chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import attend
from shared.model.known_shapes import FLASH
from shared.model.reference_math import attention, rms, rotate
from shared.model.rope import rope_tables
from tests.cuda.arrays import Array, assert_close, halves, numbers

HEAD_DIM, WINDOW, TOP_K = 128, 40, 5


def run(
    device: Device,
    *,
    rounds: bool,
    ratio: int,
    start: int,
    count: int,
    heads: int,
    chooses: bool,
    loud: int | None = None,
    build: Callable[..., Any] = attend.build,
) -> None:
    """Compares with the reference; of the compressed rows number `loud`, or that before it, outweighs the
    others."""
    random = np.random.default_rng(start + heads)
    total, slots = start + count, 75
    raw, visible_rows = numbers(random, total, HEAD_DIM), total // ratio if ratio else 0
    compressed = numbers(random, visible_rows + 1, HEAD_DIM)
    if loud is not None:
        compressed[loud] *= 400
        compressed[loud - 1] = -compressed[loud]  # no query has a negative product with both
    if rounds:
        raw, compressed = (halves(rows).view(np.float16).astype(np.float32) for rows in (raw, compressed))
    stored = halves if rounds else np.copy
    ring: Any = np.full((slots, HEAD_DIM), np.nan, np.float32)
    for position in range(max(0, total - slots), total):
        ring[position % slots] = raw[position]
    queries, sinks = numbers(random, count, heads * HEAD_DIM), numbers(random, heads)
    cosines, sines = rope_tables(FLASH, ratio, np.arange(start, total))
    seen, chosen = np.zeros((count, total + len(compressed)), bool), np.full((count, TOP_K), -1, np.int32)
    for token in range(count):
        at = start + token
        seen[token, max(0, at + 1 - WINDOW) : at + 1] = True
        rows = np.arange((at + 1) // ratio) if ratio else np.zeros(0, int)
        if chooses:
            rows = np.sort(random.permutation(rows)[:TOP_K])
            chosen[token, : len(rows)] = rows
        seen[token, total + rows] = True
    normed = rotate(rms(queries.reshape(count, heads, HEAD_DIM), 1e-6), cosines, sines)
    expected = rotate(attention(normed, np.concatenate([raw, compressed]), seen, sinks), cosines, -sines)
    compressed[visible_rows:] = np.nan  # no weight of 0 hides it
    call = build(
        device, heads=heads, head_dim=HEAD_DIM, rotary_dim=64, window=WINDOW, ratio=ratio, top_k=TOP_K,
        epsilon=1e-6, rounds=rounds,
    )  # fmt: skip
    most = min(total, WINDOW) + (min(visible_rows, TOP_K) if chooses else visible_rows)
    places = max(count, attend.MOST_SPLITS)
    partial: Array = np.full((places, heads * HEAD_DIM), np.nan, np.float32)
    maxima = np.full((places, heads, 2), 1e30, np.float32)  # not a number would be no maximum
    call(
        queries, stored(ring), stored(compressed), chosen, np.stack([cosines, sines], axis=-1),
        np.array([start], np.int32), sinks, partial, maxima, queries, rows=most, chooses=chooses,
    )  # fmt: skip
    assert_close(queries, expected.reshape(count, -1), 5e-6)


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize(
    ("ratio", "start", "count", "heads", "chooses"),
    [
        (0, 0, 1, 2, False),
        (0, 60, 6, 4, False),
        (4, 3, 1, 1, False),
        (4, 700, 1, 2, False),  # several splits
        (4, 66, 3, 12, False),
        (4, 98, 2, 2, False),  # the first token has no row left for its second split
        (4, 20, 9, 2, True),  # some queries see fewer rows than may be chosen
        (128, 254, 3, 2, False),
    ],
)
def test_attention(
    device: Device, rounds: bool, ratio: int, start: int, count: int, heads: int, chooses: bool
) -> None:
    run(device, rounds=rounds, ratio=ratio, start=start, count=count, heads=heads, chooses=chooses)


@pytest.mark.parametrize("loud", [1, 174])
def test_one_row_may_outweigh_all_others(device: Device, loud: int) -> None:
    """The exponential of the difference between the largest scores of two splits is no float."""
    run(device, rounds=False, ratio=4, start=700, count=1, heads=2, chooses=False, loud=loud)


def test_splits_share_the_rows_out() -> None:
    assert attend.splits_for(40, 1) == 1
    assert attend.splits_for(640, 1) == 10
    assert attend.splits_for(10**6, 1) == attend.MOST_SPLITS
    assert attend.splits_for(10**6, 4096) == 1


def test_odd_head_dims_are_refused(device: Device) -> None:
    sizes: dict[str, Any] = {
        "rotary_dim": 32,
        "window": 8,
        "ratio": 0,
        "top_k": 0,
        "epsilon": 1e-6,
        "rounds": True,
    }
    with pytest.raises(ValueError, match="multiples of 64"):
        attend.build(device, heads=1, head_dim=96, **sizes)
