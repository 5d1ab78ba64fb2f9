"""The functions that kernels share, one by one on the device's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels.kernel import OPTIONS, Kernel
from shared.quant.rounding import round_fp4, round_fp8_row

PROBE = """#include "warp.cuh"
extern "C" __global__ void widen(const u16* bits, float* values) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    values[at] = from_half(bits[at]);
}
extern "C" __global__ void narrow(const float* values, u16* bits) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    bits[at] = to_half(values[at]);
}
extern "C" __global__ void sums(const float* values, float* sum, float* largest) {
    sum[threadIdx.x] = warp_sum(values[threadIdx.x]);
    largest[threadIdx.x] = warp_max(values[threadIdx.x]);
}
"""


@pytest.fixture
def probe(device: Device, tmp_path: Path) -> Callable[[str], Any]:
    """-> a kernel of the probe by its name."""
    source = tmp_path / "probe.cu"
    source.write_text(PROBE)
    text = Kernel("probe", source).text()
    return lambda name: device.function(text, name, OPTIONS)


def test_every_binary16_number_is_widened_exactly(probe: Callable[[str], Any]) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    values = np.zeros(65536, np.float32)
    probe("widen")((64,), (1024,), (bits, values))
    assert np.array_equal(values, bits.view(np.float16).astype(np.float32), equal_nan=True)


def test_numbers_are_narrowed_to_the_nearest_ties_to_even(probe: Callable[[str], Any]) -> None:
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2
    wanted = np.concatenate([between, np.nextafter(between, 0), -np.nextafter(between, np.float32(np.inf))])
    values = np.concatenate([wanted, np.zeros(-len(wanted) % 1024, np.float32)]).astype(np.float32)
    bits = np.zeros(len(values), np.uint16)
    probe("narrow")((len(values) // 1024,), (1024,), (values, bits))
    assert np.array_equal(bits, values.astype(np.float16).view(np.uint16))


def test_every_lane_gets_the_same_sum(probe: Callable[[str], Any]) -> None:
    values = np.random.default_rng(0).standard_normal(32).astype(np.float32) * 1e3
    sums, largest = np.zeros(32, np.float32), np.zeros(32, np.float32)
    probe("sums")((1,), (32,), (values, sums, largest))
    assert len(set(sums.tolist())) == 1
    np.testing.assert_allclose(sums[0], values.sum(dtype=np.float64), rtol=1e-6)
    assert (largest == values.max()).all()


TWO_SUMS = """#include "warp.cuh"
#include "block.cuh"
extern "C" __global__ void two_sums(const float* values, float* sums) {
    __shared__ float scratch[128 / WARP];
    for (int at = threadIdx.x; at < 256; at += 128) {
        sums[at] = block_sum<128>(values[at], scratch);
    }
}
"""


def test_sums_of_a_block_follow_each_other(device: Device, tmp_path: Path) -> None:
    """In the same scratch memory."""
    values = np.random.default_rng(0).standard_normal((2, 128)).astype(np.float32)
    sums = np.zeros((2, 128), np.float32)
    source = tmp_path / "sums.cu"
    source.write_text(TWO_SUMS)
    device.function(Kernel("two_sums", source).text(), "two_sums", OPTIONS)((1,), (128,), (values, sums))
    expected = values.sum(axis=1, keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(sums, np.repeat(expected, 128, axis=1), rtol=1e-5)


ROUNDING = """#include "warp.cuh"
#include "rounding.cuh"
#include "index_vector.cuh"
extern "C" __global__ void round_blocks(float* eights, float* fours) {
    float2* pair = (float2*)eights + blockIdx.x * 32 + threadIdx.x;
    *pair = round_fp8(*pair);
    float4* four = (float4*)fours + blockIdx.x * 32 + threadIdx.x;
    *four = round_fp4(*four);
}
"""


def test_small_floats_are_rounded_as_the_model_does(device: Device, tmp_path: Path) -> None:
    """Bit for bit, at every power of two, around ties and down to the least scale."""
    random = np.random.default_rng(1)
    sizes = np.exp2(np.arange(-24, 25, dtype=np.float32))
    steps = np.array(
        [0, 0.25, 0.75, 1, 1.25, 1.75, 2.5, 3.5, 5, 6, 1.0625, 1.1875, 15.5, 448, 447.9], np.float32
    )
    edges = np.concatenate(
        [(sizes[:, None] * steps).ravel(), np.nextafter(sizes[:, None] * steps, 0).ravel()]
    )
    values = np.concatenate(
        [edges, -edges, random.standard_normal(3000) * 1e-5, random.standard_normal(3000)]
    )
    values = random.permutation(values.astype(np.float32))[: len(values) // 128 * 128]
    blocks = np.concatenate([np.sort(np.abs(values)) * np.sign(values), values]).astype(np.float32)
    eights = np.ascontiguousarray(blocks[: len(blocks) // 2 // 64 * 64])
    fours = np.resize(blocks, 2 * len(eights)).astype(np.float32)
    expected = round_fp8_row(eights.reshape(-1, 64), 0), round_fp4(fours.reshape(-1, 128))
    source = tmp_path / "round.cu"
    source.write_text(ROUNDING)
    kernel = device.function(Kernel("round_blocks", source).text(), "round_blocks", OPTIONS)
    kernel((len(eights) // 64,), (32,), (eights, fours))
    assert np.array_equal(eights, expected[0].ravel())
    assert np.array_equal(fours, expected[1].ravel())
