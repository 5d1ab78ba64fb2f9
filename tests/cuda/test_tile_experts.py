"""Routed experts of many tokens on tensor cores, and how their pairs are sorted."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import sort_pairs, tile_experts
from ds4cuda.kernels.tile_experts import GROUP
from ds4cuda.weights import Experts
from shared.gguf.types import TensorType
from shared.model.reference_math import swiglu
from shared.quant.dequantise import dequantise
from shared.quant.iq2 import iq2_grid
from tests.cuda.arrays import assert_close, numbers
from tests.cuda.codes import expert_codes
from tests.cuda.test_experts import blocks

# Every type once: a tile is the same text for both products.
KINDS = [(TensorType.IQ2_XXS, TensorType.Q2_K), (TensorType.Q4_K, TensorType.MXFP4)]
WIDTH, INNER, ENTRIES = 512, 256, 4


def sort(device: Device, chosen: np.ndarray, experts: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Order and groups of the pairs."""
    order = np.full(chosen.size, -1, np.int32)
    groups = np.full((3, sort_pairs.most_groups(chosen.size, experts, group)), -1, np.int32)
    sort_pairs.build(device)(chosen, np.full(experts, -1, np.int32), order, groups, group=group)
    return order, groups


@pytest.mark.parametrize(("count", "experts", "group"), [(1, 3, 4), (150, 5, 32), (700, 300, 8)])
def test_pairs_are_sorted(device: Device, count: int, experts: int, group: int) -> None:
    """Also with an expert that takes more than a group, one that none chose, and the last one chosen."""
    random = np.random.default_rng(count)
    chosen = (random.integers(0, experts, (count, 2)) // 2 * 2).astype(np.int32)
    chosen[-1] = experts - 1
    order, groups = sort(device, chosen, experts, group)
    assert order.tolist() == np.argsort(chosen.reshape(-1), kind="stable").tolist()
    expected, first = [], 0
    for expert, pairs in enumerate(np.bincount(chosen.reshape(-1), minlength=experts).tolist()):
        expected += [[expert, first + at, min(group, pairs - at)] for at in range(0, pairs, group)]
        first += pairs
    assert groups[:, : len(expected)].T.tolist() == expected
    assert not groups[2, len(expected) :].any()


def test_the_last_pair_is_sorted_alone_in_a_round_of_threads(device: Device) -> None:
    pairs = sort_pairs.THREADS + 1
    chosen = np.zeros((pairs, 1), np.int32)
    chosen[-1] = 1
    order, groups = sort(device, chosen, 2, pairs)
    assert order.tolist() == list(range(pairs))
    assert groups[:, :2].T.tolist() == [[0, 0, pairs - 1], [1, pairs - 1, 1]]


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: f"{kinds[0].name}-{kinds[1].name}")
def test_experts_in_tiles(device: Device, kinds: tuple[TensorType, TensorType]) -> None:
    """Groups of one pair, of all that fit, of some, also whole eights; an expert twice counts twice."""
    random, (in_type, down_type) = np.random.default_rng(1), kinds
    used, count = 2, 50
    chosen = np.full((count, used), 3, np.int32)
    chosen[:10, 0], chosen[10, 1], chosen[11, 0] = 0, 0, 1
    gate, up = (blocks(random, in_type, ENTRIES * INNER, WIDTH) for _ in range(2))
    down = blocks(random, down_type, ENTRIES * WIDTH, INNER)
    held, table = Experts(gate, up, down, in_type, down_type), iq2_grid().view("<u4")
    x, values = expert_codes(random, count, WIDTH)
    inner, inner_values = expert_codes(random, count * used, INNER)
    for made, meant in ((x, values), (inner, inner_values)):  # the largest sums of codes
        made.codes[0], made.sums[0] = 127, 16 * 127
        meant[0] = 127 * np.repeat(made.scales[0].astype(np.float64), 256)
    shares = random.uniform(0.1, 2, (count, used)).astype(np.float32)
    order, groups = sort(device, chosen, ENTRIES, GROUP)
    assert groups[2, :4].tolist() == [11, 1, 64, 24]
    pairs = count * used
    hidden, outputs = np.zeros((pairs, INNER), np.float32), np.zeros((pairs, WIDTH), np.float32)
    before = numbers(random, count, WIDTH)
    y = before.copy()
    call = tile_experts.build(
        device,
        in_type=in_type,
        down_type=down_type,
        width=WIDTH,
        expert_width=INNER,
        used=used,
        clamp=10.0,
    )
    call.gate_up(held, table, x, order, groups, shares, hidden)
    call.down(held, table, inner, order, groups, outputs, y)
    gates, ups = (
        dequantise(in_type, part, (ENTRIES, INNER, WIDTH)).astype(np.float64) for part in (gate, up)
    )
    downs = dequantise(down_type, down, (ENTRIES, WIDTH, INNER)).astype(np.float64)
    expected = before.astype(np.float64)
    for token, slot in np.ndindex(count, used):
        expert, pair = chosen[token, slot], token * used + slot
        of_gate, of_up = ((m[expert] @ values[token]).astype(np.float32) for m in (gates, ups))
        found = swiglu(of_gate, of_up, 10.0)
        assert_close(hidden[pair], found * shares[token, slot], 1e-5)
        own = downs[expert] @ inner_values[pair]
        assert_close(outputs[pair], own)
        expected[token] += own
    assert_close(y, expected)


@pytest.mark.parametrize(("width", "expert_width"), [(384, 256), (256, 384)])
def test_other_widths_are_refused(device: Device, width: int, expert_width: int) -> None:
    with pytest.raises(ValueError, match="multiples of 256"):
        tile_experts.build(
            device,
            in_type=TensorType.MXFP4,
            down_type=TensorType.MXFP4,
            width=width,
            expert_width=expert_width,
            used=1,
            clamp=10.0,
        )
