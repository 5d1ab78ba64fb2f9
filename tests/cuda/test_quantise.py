"""Activations rounded to 8 bits, bit for bit as the reference rounds them."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import quantise
from ds4cuda.kernels.quantise import DenseCodes, ExpertCodes
from shared.quant.activations import round_q8_0, round_q8_k
from tests.cuda.arrays import Array, numbers


def dense_codes(count: int, width: int) -> DenseCodes:
    return DenseCodes(np.full((count, width), 99, np.int8), np.full((count, width // 32), np.nan, np.float32))


def expert_codes(count: int, width: int) -> ExpertCodes:
    codes, scales = np.full((count, width), 99, np.int8), np.full((count, width // 256), np.nan, np.float32)
    return ExpertCodes(codes, scales, np.full((count, width // 16), 9999, np.int16))


def awkward(count: int, width: int) -> Array:
    """Numbers with ties between whole codes, equal largest ones of both signs, blocks of zeros."""
    random = np.random.default_rng(width + count)
    x = numbers(random, count, width)
    x[:, :32] = 0
    x[0, 32:64] = np.arange(32) * np.float32(0.5) - 8
    x[0, 40], x[0, 50] = 127, -127
    x[0, 64:96] *= np.float32(1e-30)
    x[-1, 7::32] = np.float32(3.5)
    x[-1, 9::32] = np.float32(-3.5)
    return x


def assert_dense(found: DenseCodes, x: Array) -> None:
    widened = found.codes * np.repeat(found.scales, 32, axis=1)
    assert np.array_equal(widened, round_q8_0(x))
    assert np.abs(found.codes.reshape(-1, 32)).max(axis=1).tolist() == [
        127 * bool(largest) for largest in np.abs(x.reshape(-1, 32)).max(axis=1)
    ]


def assert_expert(found: ExpertCodes, x: Array) -> None:
    widened = found.codes * np.repeat(found.scales, 256, axis=1)
    assert np.array_equal(widened, round_q8_k(x))
    assert found.codes.reshape(-1, 256).min(axis=1).tolist() == [
        -127 * bool(largest) for largest in np.abs(x.reshape(-1, 256)).max(axis=1)
    ]
    assert np.array_equal(found.sums, found.codes.reshape(len(x), -1, 16).sum(axis=2))


@pytest.mark.parametrize(("count", "width"), [(1, 96), (3, 256), (2, 1120)])
def test_inputs_of_dense_matrices(device: Device, count: int, width: int) -> None:
    x, to = awkward(count, width), dense_codes(count, width)
    quantise.build(device).dense(x, to)
    assert_dense(to, x)


@pytest.mark.parametrize(("count", "width"), [(1, 256), (3, 1280)])
def test_inputs_of_experts(device: Device, count: int, width: int) -> None:
    x, to = awkward(count, width), expert_codes(count, width)
    x[-1, :256] = 0
    quantise.build(device).expert(x, to)
    assert_expert(to, x)


def test_both_at_once(device: Device) -> None:
    x, to_dense, to_expert = awkward(2, 512), dense_codes(2, 512), expert_codes(2, 512)
    quantise.build(device).both(x, to_dense, to_expert)
    assert_dense(to_dense, x)
    assert_expert(to_expert, x)


def test_hidden_vectors(device: Device) -> None:
    x, shared = awkward(6, 512), awkward(2, 512) * np.float32(3)
    to, to_dense = expert_codes(6, 512), dense_codes(2, 512)
    quantise.build(device).hidden(x, to, shared, to_dense)
    assert_expert(to, x)
    assert_dense(to_dense, shared)


def test_the_first_of_equal_largest_numbers_gives_the_sign(device: Device) -> None:
    """In every pair of lanes, and within a lane."""
    for first, second in ((0, 1), (7, 8), (15, 16), (31, 32), (63, 64), (127, 128), (3, 255)):
        x, to = np.zeros((2, 256), np.float32), expert_codes(2, 256)
        x[0, [first, second]] = 2, -2
        x[1, [first, second]] = -2, 2
        quantise.build(device).expert(x, to)
        assert to.codes[:, first].tolist() == [-127, -127]
        assert to.codes[:, second].tolist() == [127, 127]
        assert np.sign(to.scales[:, 0]).tolist() == [-1, 1]
        assert_expert(to, x)
