"""Products with dense matrices, embeddings and the beginning of a step."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import begin_step, embed, project, project_swiglu
from shared.model.known_shapes import FLASH
from shared.model.reference_math import swiglu
from shared.model.rope import rope_tables, rotary_frequencies
from tests.cuda.arrays import assert_close, halves, matrix, numbers


@pytest.mark.parametrize("storage", ["q8_0", "f16"])
@pytest.mark.parametrize(
    ("count", "outputs", "inputs", "groups"),
    [(1, 37, 96, 1), (9, 18, 160, 1), (1, 12, 64, 2), (8, 10, 32, 2)],
)
def test_products(device: Device, storage: str, count: int, outputs: int, inputs: int, groups: int) -> None:
    random = np.random.default_rng(count)
    held, weights = matrix(random, storage, outputs, inputs)
    x, y = numbers(random, count, groups * inputs), np.zeros((count, outputs), np.float32)
    project.build(device, storage=storage)(held, x, y, groups)
    parts = x.reshape(count, groups, inputs).astype(np.float64)
    expected = np.einsum("ngi,goi->ngo", parts, weights.reshape(groups, -1, inputs)).reshape(count, outputs)
    assert_close(y, expected)


def test_one_token_gives_the_bits_of_many(device: Device) -> None:
    random = np.random.default_rng(3)
    held, _ = matrix(random, "q8_0", 9, 256)
    x, call = numbers(random, 8, 256), project.build(device, storage="q8_0")
    together, alone = np.zeros((8, 9), np.float32), np.zeros((8, 9), np.float32)
    call(held, x, together)
    for token in range(8):
        call(held, x[token : token + 1], alone[token : token + 1])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("clamp", [10.0, 0.0])
def test_hidden_vectors(device: Device, count: int, clamp: float) -> None:
    random = np.random.default_rng(4)
    held, weights = matrix(random, "q8_0", 2 * 21, 128)
    x, hidden = 4 * numbers(random, count, 128), np.zeros((count, 21), np.float32)
    project_swiglu.build(device, storage="q8_0", clamp=clamp)(held, x, hidden)
    gate, up = np.split(x.astype(np.float64) @ weights.T, 2, axis=1)
    assert np.abs(gate).max() > 10
    assert_close(hidden, swiglu(gate.astype(np.float32), up.astype(np.float32), clamp), 5e-6)


def test_embeddings(device: Device) -> None:
    random = np.random.default_rng(5)
    table = numbers(random, 11, 300)
    streams = np.zeros((3, 4, 300), np.float32)
    embed.build(device, width=300, streams=4)(np.array([10, 0, 7], np.int32), halves(table), streams)
    expected = halves(table).view(np.float16).astype(np.float32)[[10, 0, 7]]
    assert np.array_equal(streams, np.repeat(expected[:, None], 4, axis=1))


@pytest.mark.parametrize("start", [0, 1_000_003])
def test_a_step_begins(device: Device, start: int) -> None:
    """Rotations as of the shared tables, also far out, where a float32 angle would be off by 0.03."""
    frequencies = np.stack([rotary_frequencies(FLASH, ratio) for ratio in (0, 4)])
    rotations, position = np.zeros((2, 5, 32, 2), np.float32), np.zeros(1, np.int32)
    tokens = np.array([1, 2, 3, 4, 5], np.int32)
    call = begin_step.build(device, pairs=32)
    chosen = np.array([7], np.int32)
    call(frequencies, rotations, position, tokens, tokens, start=start, token=-1, count=3)
    for kind in (0, 1):
        expected = np.stack(rope_tables(FLASH, kind, np.arange(start, start + 3)), axis=-1)
        np.testing.assert_allclose(rotations[kind, :3], expected, rtol=0, atol=6e-8)
    assert not rotations[:, 3:].any()
    assert position[0] == start
    assert tokens.tolist() == [1, 2, 3, 4, 5]
    for token, first in ((9, 9), (0, 0), (-1, 7)):
        call(frequencies, rotations, position, tokens, chosen, start=start, token=token, count=1)
        assert tokens.tolist() == [first, 2, 3, 4, 5]
