from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.experts import ExpertDimensions, RawExperts
from ds4mlx.kernels import experts_decode
from ds4mlx.kernels.block_types import random_blocks
from ds4mlx.kernels.kernel import Example, Maker
from ds4mlx.linear import Dimensions, HalfMatrix, PackedMatrix, pack_q8_0
from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise

IQ2, Q2, Q4 = TensorType.IQ2_XXS, TensorType.Q2_K, TensorType.Q4_K
_UNIT = 2.0**-24
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layer:
    """Made-up experts, the kernel's arguments besides the tokens, and all weights in double precision."""

    store: RawExperts
    shared_down: PackedMatrix | HalfMatrix
    gate: Doubles
    up: Doubles
    down: Doubles
    shared: Doubles


def _layer(
    in_type: TensorType,
    down_type: TensorType,
    width: int,
    expert_width: int,
    *,
    count: int = 3,
    shared_width: int = 96,
    half: bool = False,
) -> Layer:
    random = np.random.default_rng(int(in_type) * 100 + int(down_type))
    raw = [
        random_blocks(random, (count, rows), columns, kind)
        for rows, columns, kind in (
            (expert_width, width, in_type),
            (expert_width, width, in_type),
            (width, expert_width, down_type),
        )
    ]
    gate, up = (dequantise(in_type, part.reshape(-1), (count, expert_width, width)) for part in raw[:2])
    down = dequantise(down_type, raw[2].reshape(-1), (count, width, expert_width))
    shared_down, shared = (_half_matrix if half else _packed_matrix)(random, width, shared_width)
    first, second, third = (mx.array(part) for part in raw)
    store = RawExperts(first, second, third, in_type, down_type)
    return Layer(store, shared_down, *(part.astype(np.float64) for part in (gate, up, down, shared)))


def _half_matrix(
    random: np.random.Generator, outputs: int, inputs: int
) -> tuple[HalfMatrix, npt.NDArray[np.float16]]:
    weights = random.standard_normal((outputs, inputs)).astype(np.float16)
    return HalfMatrix(mx.array(weights)), weights


def _packed_matrix(
    random: np.random.Generator, outputs: int, inputs: int
) -> tuple[PackedMatrix, npt.NDArray[np.float32]]:
    blocks = random.integers(0, 256, (outputs * inputs // 32, 34), dtype=np.uint8)
    blocks[:, :2] = random.uniform(0.005, 0.01, len(blocks)).astype(np.float16)[:, None].view(np.uint8)
    weights = dequantise(TensorType.Q8_0, blocks.reshape(-1), (outputs, inputs))
    return pack_q8_0(blocks.reshape(-1), outputs), weights


def _product(weights: Doubles, x: Doubles) -> tuple[Doubles, float]:
    """Rows times x and by how much the contract allows them to be off."""
    return weights @ x, 8 * _UNIT * float(np.abs(weights).max() * np.linalg.norm(x))


def _expected(
    layer: Layer, x: Doubles, chosen: npt.NDArray[np.int32], shares: Doubles, hidden: Doubles, clamp: float
) -> tuple[Doubles, float]:
    """One token's output, and by how much the contract's products let it be off."""
    total, shared_off = _product(layer.shared, hidden)
    allowed = [shared_off]
    limit = clamp if clamp > 1e-6 else np.inf
    for expert, share in zip(chosen.tolist(), shares.tolist(), strict=True):
        gate, gate_off = _product(layer.gate[expert], x)
        up, up_off = _product(layer.up[expert], x)
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        with np.errstate(over="ignore"):
            silu = gate / (1 + np.exp(-gate))
        activated = silu * up * share
        # The slope of silu is below 1.1; a few units more for the exponential and the products.
        off = share * (1.1 * gate_off * np.abs(up) + up_off * np.abs(silu)) + 16 * _UNIT * np.abs(activated)
        part, part_off = _product(layer.down[expert], activated)
        total = total + part
        allowed += [part_off, float(np.abs(layer.down[expert]).max() * np.linalg.norm(off))]
    return total, float(np.linalg.norm(allowed))


def _tokens(layer: Layer, chosen: npt.NDArray[np.int32], scale: float) -> tuple[Any, ...]:
    random = np.random.default_rng(chosen.size)
    tokens = len(chosen)
    x = random.standard_normal((tokens, layer.gate.shape[2])).astype(np.float32) * np.float32(scale)
    shares = random.uniform(0.1, 1, chosen.shape).astype(np.float32)
    hidden = random.standard_normal((tokens, layer.shared.shape[1])).astype(np.float32)
    return x, chosen, shares, hidden


def _run(maker: Maker, layer: Layer, tokens: tuple[Any, ...], clamp: float) -> npt.NDArray[np.float32]:
    x, chosen, shares, hidden = (mx.array(part) for part in tokens)
    launch = experts_decode.build(
        maker,
        experts=layer.store.dimensions,
        shared_down=layer.shared_down.dimensions,
        used=chosen.shape[1],
        clamp=clamp,
    )
    return np.array(launch(x, layer.store, chosen, shares, hidden, layer.shared_down))


def _check(
    maker: Maker,
    layer: Callable[[], Layer],
    chosen: list[list[int]],
    *,
    clamp: float = 10.0,
    scale: float = 1.0,
) -> None:
    made = layer()
    tokens = _tokens(made, np.array(chosen, np.int32), scale)
    results = _run(maker, made, tokens, clamp)
    x, experts, shares, hidden = tokens
    for token, result in enumerate(results):
        numbers = (part[token].astype(np.float64) for part in (x, shares, hidden))
        values, weights, inner = numbers
        expected, allowed = _expected(made, values, experts[token], weights, inner, clamp)
        assert np.abs(result - expected).max() <= allowed
        # The allowance must be small beside what is computed, or nothing is checked.
        assert allowed < 2e-5 * np.abs(expected).max()


def _same_in_company(maker: Maker) -> None:
    """Bit for bit: once more, and a token alone."""
    layer = _layer(IQ2, Q2, 256, 256)
    tokens = _tokens(layer, np.array([[0, 2], [1, 0]], np.int32), 1.0)
    together = _run(maker, layer, tokens, 10.0)
    np.testing.assert_array_equal(_run(maker, layer, tokens, 10.0), together)
    for token in range(2):
        alone = _run(maker, layer, tuple(part[token : token + 1] for part in tokens), 10.0)
        np.testing.assert_array_equal(alone[0], together[token])


# What a mutant of the kernels has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "IQ2_XXS, Q2_K, one token of six": partial(
        _check, layer=partial(_layer, IQ2, Q2, 256, 256), chosen=[[2, 0, 1, 1, 2, 0]]
    ),
    "Q4_K twice, two tokens": partial(
        _check, layer=partial(_layer, Q4, Q4, 256, 256), chosen=[[0, 2, 2, 1], [1, 0, 2, 0]]
    ),
    "Q2_K, IQ2_XXS, more parts than lanes": partial(
        _check, layer=partial(_layer, Q2, IQ2, 1280, 256, shared_width=1056), chosen=[[1, 2]]
    ),
    "more parts of the hidden layer than lanes": partial(
        _check, layer=partial(_layer, IQ2, Q4, 256, 1280, half=True), chosen=[[2, 1]]
    ),
    "clamps, float16 shared expert": partial(
        _check, layer=partial(_layer, Q2, Q2, 256, 512, half=True), chosen=[[1, 0]], clamp=0.25
    ),
    "IQ2_XXS last, float16 shared expert": partial(
        _check, layer=partial(_layer, Q4, IQ2, 256, 256, half=True), chosen=[[1, 0]]
    ),
    "no clamp, gates far below zero": partial(
        _check, layer=partial(_layer, IQ2, Q2, 512, 256), chosen=[[1, 0, 2]], clamp=1e-6, scale=200.0
    ),
    "same in company": _same_in_company,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.parametrize("example", list(experts_decode.examples()), ids=lambda example: example.label)
def test_examples_agree_with_the_fallback(example: Example, maker: Maker) -> None:
    expected = np.array(example.fallback(*example.arguments))
    found = np.array(example.build(maker)(*example.arguments))
    assert np.abs(found - expected).max() <= example.tolerance * np.abs(expected).max()


_FINE = ExpertDimensions(Q2, Q2, 3, 256, 256)
_SHARED = Dimensions("q8_0", 96, 256)


@pytest.mark.parametrize(
    ("experts", "shared_down", "reason"),
    [
        (replace(_FINE, expert_width=128), _SHARED, "whole blocks"),
        (replace(_FINE, width=384), replace(_SHARED, outputs=384), "whole blocks"),
        (replace(_FINE, in_type=TensorType.MXFP4), _SHARED, "type MXFP4"),
        (replace(_FINE, down_type=TensorType.Q8_0), _SHARED, "type Q8_0"),
        (_FINE, replace(_SHARED, storage="f32"), "not for kernels"),
        (_FINE, replace(_SHARED, groups=2), "not for kernels"),
        (_FINE, replace(_SHARED, inputs=80), "not for kernels"),
        (_FINE, replace(_SHARED, outputs=512), "different outputs"),
    ],
)
def test_refuses(experts: ExpertDimensions, shared_down: Dimensions, reason: str, maker: Maker) -> None:
    with pytest.raises(ValueError, match=reason):
        experts_decode.build(maker, experts=experts, shared_down=shared_down, used=2, clamp=10.0)
