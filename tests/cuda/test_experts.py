"""Routing and the routed experts of every block type."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import group_experts, route, run_experts
from ds4cuda.kernels.kernel import Kernel
from ds4cuda.weights import Experts
from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.model.reference_math import largest_first, softplus, swiglu
from shared.quant.dequantise import dequantise
from shared.quant.iq2 import iq2_grid
from tests.cuda.arrays import assert_close, matrix, numbers

# Where in a block its binary16 numbers stand.
SCALES_AT = {
    TensorType.IQ2_XXS: (0,),
    TensorType.Q2_K: (80, 82),
    TensorType.Q4_K: (0, 2),
    TensorType.MXFP4: (),
}
ENTRIES = 3
# No file mixes MXFP4 with another type in a layer.
KINDS = [kinds for kinds in product(SCALES_AT, repeat=2) if kinds.count(TensorType.MXFP4) != 1]

DECODE = """#include "warp.cuh"
#include "block_type.cuh"
extern "C" __global__ void decode(const u8* blocks, const uint2* table, float* weights) {
    const int part = threadIdx.x, parts = BLOCK_WEIGHTS / 32;
    part_weights(blocks + part / parts * BLOCK_BYTES, part % parts, table, weights + 32 * part);
}
"""


def blocks(random: np.random.Generator, kind: TensorType, rows: int, columns: int) -> np.ndarray:
    """Rows of random codes, with scales of a plain size."""
    made = random.integers(0, 256, (rows, columns // block_elements(kind), block_bytes(kind)), np.uint8)
    for at in SCALES_AT[kind]:
        scales = random.uniform(-0.02, 0.02, made.shape[:-1]).astype(np.float16)
        made[..., at : at + 2] = scales[..., None].view(np.uint8)
    if kind is TensorType.MXFP4:
        made[..., 0] = random.integers(118, 124, made.shape[:-1])
    return made.reshape(rows, -1)


@pytest.mark.parametrize("kind", SCALES_AT, ids=lambda kind: kind.name)
def test_a_thread_decodes_its_32_weights_alone(device: Device, tmp_path: Path, kind: TensorType) -> None:
    source = tmp_path / "decode.cu"
    source.write_text(DECODE)
    decode = Kernel("decode", source).replacing(run_experts.BLOCK_TYPE, run_experts.BLOCK_HEADERS[kind])
    held, weights = blocks(np.random.default_rng(7), kind, 1, 1024), np.zeros((1, 1024), np.float32)
    decode.specialise(device)((1,), 32, held, iq2_grid().view("<u4"), weights)
    assert_close(weights, dequantise(kind, held, (1, 1024)), 1e-6)


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: f"{kinds[0].name}-{kinds[1].name}")
def test_experts(device: Device, kinds: tuple[TensorType, TensorType]) -> None:
    random, (in_type, down_type) = np.random.default_rng(1), kinds
    width, inner, used, count = 512, 256, 2, 2
    gate, up = (blocks(random, in_type, ENTRIES * inner, width) for _ in range(2))
    down = blocks(random, down_type, ENTRIES * width, inner)
    held, shared_weights = matrix(random, "q8_0", width, inner)
    x, shared_hidden = numbers(random, count, width), numbers(random, count, inner)
    chosen = np.array([[2, 0], [1, 1]], np.int32)  # an expert twice counts twice
    shares = random.uniform(0.1, 2, (count, used)).astype(np.float32)
    hidden, y = np.zeros((count * used, inner), np.float32), np.zeros((count, width), np.float32)
    sizes = {"width": width, "expert_width": inner, "used": used, "clamp": 10.0}
    call = run_experts.build(device, in_type=in_type, down_type=down_type, **sizes)
    table, experts = iq2_grid().view("<u4"), Experts(gate, up, down, in_type, down_type)
    call(experts, table, x, chosen, shares, hidden, held, shared_hidden, y)
    gates, ups = (
        dequantise(in_type, part, (ENTRIES, inner, width)).astype(np.float64) for part in (gate, up)
    )
    downs = dequantise(down_type, down, (ENTRIES, width, inner)).astype(np.float64)
    expected = shared_hidden @ shared_weights.T.astype(np.float64)
    for token, slot in np.ndindex(count, used):
        expert = chosen[token, slot]
        found = swiglu(*(m[expert].dot(x[token]).astype(np.float32) for m in (gates, ups)), 10.0)
        assert_close(hidden[token * used + slot], found * shares[token, slot], 1e-5)
        expected[token] += downs[expert] @ (found * shares[token, slot])
    assert_close(y, expected, 1e-5)


@pytest.mark.parametrize(
    "kinds", [(TensorType.IQ2_XXS, TensorType.Q2_K), (TensorType.Q4_K,) * 2, (TensorType.MXFP4,) * 2]
)
def test_grouped_experts(device: Device, kinds: tuple[TensorType, TensorType]) -> None:
    """The same numbers as pair by pair: an expert with two groups, one with one pair, one without any."""
    random, (in_type, down_type) = np.random.default_rng(2), kinds
    inner, used, count, entries = 256, 2, 7, 4
    width = 288 if in_type is TensorType.MXFP4 else 256  # no multiple of a thread block's channels
    gate, up = (blocks(random, in_type, entries * inner, width) for _ in range(2))
    down = blocks(random, down_type, entries * width, inner)
    held, shared_weights = matrix(random, "q8_0", width, inner)
    x, shared_hidden = numbers(random, count, width), numbers(random, count, inner)
    chosen = np.array([[3, 0], [3, 3], [0, 3], [3, 0], [3, 3], [3, 1], [3, 3]], np.int32)
    shares = random.uniform(0.1, 2, (count, used)).astype(np.float32)
    hidden, y = np.zeros((count * used, inner), np.float32), np.zeros((count, width), np.float32)
    table, experts = iq2_grid().view("<u4"), Experts(gate, up, down, in_type, down_type)
    sizes = {"in_type": in_type, "down_type": down_type, "width": width, "expert_width": inner, "used": used}
    one_by_one = run_experts.build(device, clamp=10.0, **sizes)
    one_by_one(experts, table, x, chosen, shares, hidden, held, shared_hidden, y)
    pairs = count * used
    grouped_hidden = np.zeros_like(hidden)
    outputs, order = np.zeros((pairs, width), np.float32), np.zeros(pairs, np.int32)
    groups = np.full((3, group_experts.most_groups(pairs, entries)), -1, np.int32)
    grouped_y = (shared_hidden @ shared_weights.T).astype(np.float32)
    grouped = group_experts.build(device, clamp=10.0, experts=entries, **sizes)
    grouped(experts, table, x, chosen, shares, grouped_hidden, outputs, order, groups, grouped_y)
    assert order.tolist() == np.argsort(chosen.reshape(-1), kind="stable").tolist()
    assert groups[:, :4].tolist() == [[0, 1, 3, 3], [0, 3, 4, 12], [3, 1, 8, 2]]
    assert not groups[2, 4:].any()
    assert_close(grouped_hidden, hidden)
    assert_close(grouped_y, y, 5e-6)


@pytest.mark.parametrize(("experts", "used"), [(8, 3), (384, 6), (37, 1), (40, 32)])
def test_the_best_experts_are_chosen(device: Device, experts: int, used: int) -> None:
    random = np.random.default_rng(experts)
    logits = 6 * numbers(random, 4, experts)
    logits[0] = 1.5  # all alike: the lowest numbers
    logits[1, : experts // 2] = -30.0
    logits[2] = 25.0
    bias = np.where(np.arange(experts) % 5 == 4, 0.25, 0).astype(np.float32)
    chosen, shares = np.zeros((4, used), np.int32), np.zeros((4, used), np.float32)
    call = route.build(device, experts=experts, used=used, scale=2.5, hashed=False)
    call(logits, bias, chosen, chosen, chosen, shares)
    affinity = np.sqrt(softplus(logits))
    expected = largest_first(affinity + bias, used)
    assert np.array_equal(chosen, expected)
    own = np.take_along_axis(affinity, expected, axis=1)
    assert_close(shares, own / np.maximum(own.sum(axis=1, keepdims=True), 2.0**-14) * 2.5)


def test_hashed_experts_and_tiny_sums(device: Device) -> None:
    random = np.random.default_rng(2)
    table, tokens = random.integers(0, 8, (5, 3)).astype(np.int32), np.array([4, 0], np.int32)
    logits = np.full((2, 8), -40.0, np.float32)
    logits[1] = numbers(random, 8)
    chosen, shares = np.zeros((2, 3), np.int32), np.zeros((2, 3), np.float32)
    call = route.build(device, experts=8, used=3, scale=1.5, hashed=True)
    call(logits, logits, table, tokens, chosen, shares)
    assert np.array_equal(chosen, table[tokens])
    own = np.sqrt(np.log1p(np.exp(np.take_along_axis(logits, chosen, axis=1).astype(np.float64))))
    np.testing.assert_allclose(shares, own / np.maximum(own.sum(1, keepdims=True), 2.0**-14) * 1.5, rtol=5e-6)


def test_more_slots_than_lanes_are_refused(device: Device) -> None:
    with pytest.raises(ValueError, match="32 experts"):
        route.build(device, experts=64, used=33, scale=1.0, hashed=False)
