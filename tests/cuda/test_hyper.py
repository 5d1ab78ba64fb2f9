"""Hyper-connections: joining, mixing, collapsing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import hyper_collapse, hyper_mix
from shared.model.reference_math import hyper_connection_weights, rms, sigmoid
from tests.cuda.arrays import Array, assert_close, halves, numbers

SETTINGS: dict[str, Any] = {"rounds": 20, "epsilon": 1e-6, "rms_epsilon": 1e-6}


def mixed(device: Device, streams: Array, mix: Array, joining: tuple[Array, Array] | None) -> Array:
    count, _, width = streams.shape
    partial = np.zeros((count, hyper_mix.slices(width), len(mix) + 1), np.float32)
    made = hyper_mix.build(device, width=width, streams=4, mixes=len(mix), joins=joining is not None)
    made(streams, *(joining or (streams, streams)), halves(mix), partial)
    return partial


@pytest.mark.parametrize(
    ("mixes", "joins"),
    [(24, True), (24, False), (4, True), (4, False), (8, False), (31, False)],  # as many sums as there can be
)
def test_streams_join_and_mix(device: Device, mixes: int, joins: bool) -> None:
    random = np.random.default_rng(mixes)
    width = 192  # the second slice is half full
    streams, mix = numbers(random, 2, 4, width), numbers(random, mixes, 4 * width)
    output, joint = numbers(random, 2, width), numbers(random, 2, 20)
    before = streams.copy()
    partial = mixed(device, streams, mix, (output, joint) if joins else None)
    expected = before.astype(np.float64)
    if joins:
        combine = joint[:, 4:].reshape(2, 4, 4)
        expected = joint[:, :4, None] * output[:, None] + combine.transpose(0, 2, 1) @ expected
        assert_close(streams, expected)
    else:
        assert np.array_equal(streams, before)
    flat = expected.reshape(2, -1)
    weights = halves(mix).view(np.float16).astype(np.float64)
    sums = np.concatenate([flat @ weights.T, (flat**2).sum(axis=1, keepdims=True)], axis=1)
    assert_close(partial.sum(axis=1), sums)


@pytest.mark.parametrize(("rounds", "epsilon"), [(1, 1e-6), (2, 1e-6), (20, 1e-6), (1, 0.05)])
def test_blocks_collapse(device: Device, rounds: int, epsilon: float) -> None:
    """After few rounds it still shows what is summed, many rounds have one limit; a large epsilon shows where
    it is added."""
    random = np.random.default_rng(7)
    width = 320
    streams, mix = numbers(random, 3, 4, width), 0.1 * numbers(random, 24, 4 * width)
    scale, base, norm = 2 * numbers(random, 3), numbers(random, 24), numbers(random, width)
    partial = mixed(device, streams, mix, None)
    x, joint = np.zeros((3, width), np.float32), np.zeros((3, 20), np.float32)
    settings = SETTINGS | {"rounds": rounds, "epsilon": epsilon}
    call = hyper_collapse.build(device, width=width, streams=4, head=False, **settings)
    call(streams, partial, np.repeat(scale, (4, 4, 16)), base, norm, x, joint)
    flat = rms(streams.reshape(3, -1), 1e-6) @ halves(mix).view(np.float16).astype(np.float32).T
    pre, post, combine = hyper_connection_weights(
        flat, scale, base, streams=4, rounds=rounds, epsilon=epsilon
    )
    assert_close(x, rms((pre[:, None] @ streams)[:, 0], 1e-6) * norm, 5e-6)
    assert_close(joint[:, :4], post, 5e-6)
    assert_close(joint[:, 4:], combine.reshape(3, 16), 5e-6)


def test_the_head_collapses(device: Device) -> None:
    random = np.random.default_rng(8)
    width = 64
    streams, mix = numbers(random, 2, 4, width), numbers(random, 4, 4 * width)
    scale, base, norm = numbers(random, 4), numbers(random, 4), numbers(random, width)
    partial = mixed(device, streams, mix, None)
    x, joint = np.zeros((2, width), np.float32), np.zeros((2, 20), np.float32)
    call = hyper_collapse.build(device, width=width, streams=4, head=True, **SETTINGS)
    call(streams, partial, scale, base, norm, x, joint)
    flat = rms(streams.reshape(2, -1), 1e-6) @ halves(mix).view(np.float16).astype(np.float32).T
    pre = sigmoid(flat * scale + base) + np.float32(1e-6)
    assert_close(x, rms((pre[:, None] @ streams)[:, 0], 1e-6) * norm, 5e-6)
    assert not joint.any()


def test_other_stream_counts_are_refused(device: Device) -> None:
    with pytest.raises(ValueError, match="4 streams"):
        hyper_collapse.build(device, width=64, streams=2, head=False, **SETTINGS)
