from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx import experts as plain
from ds4mlx.kernels import experts_prefill
from ds4mlx.kernels.block_types import SCALES_AT
from ds4mlx.kernels.experts_prefill import TOKENS
from ds4mlx.kernels.kernel import Maker
from shared.gguf.types import TensorType, block_bytes
from shared.quant.dequantise import dequantise

# Scales of blocks for weights of about 0.1.
_SCALES = {TensorType.IQ2_XXS: 2e-3, TensorType.Q2_K: 6e-3, TensorType.Q4_K: 3e-4}

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Layer:
    """Dimensions and types of the experts of a layer."""

    embedding_width: int = 512
    expert_width: int = 256
    experts: int = 5
    used: int = 2
    in_type: TensorType = TensorType.IQ2_XXS
    down_type: TensorType = TensorType.Q2_K
    clamp: float = 10.0
    half_hidden: bool = True

    def build(self, maker: Maker) -> experts_prefill.ExpertsPrefill:
        names = self.__dataclass_fields__
        return experts_prefill.build(maker, **{name: getattr(self, name) for name in names})

    def fallback(self) -> experts_prefill.ExpertsPrefill:
        return partial(
            experts_prefill.fallback, in_type=self.in_type, down_type=self.down_type, clamp=self.clamp
        )


Arguments = tuple[mx.array, mx.array, mx.array, mx.array, mx.array, mx.array, mx.array]


def _blocks(random: np.random.Generator, kind: TensorType, *shape: int) -> npt.NDArray[np.uint8]:
    """Rows [*shape, bytes] with random codes and a scale of its own, of either sign, for each block."""
    *rows, columns = shape
    count = int(np.prod(rows)) * columns // 256
    blocks = random.integers(0, 256, (count, block_bytes(kind)), np.uint8)
    for place in SCALES_AT[kind]:
        scales = _SCALES[kind] * random.uniform(0.5, 1.5, (count, 1)) * random.choice([-1, 1], (count, 1))
        blocks[:, place : place + 2] = scales.astype("<f2").view(np.uint8)
    return blocks.reshape(*rows, -1)


def _arguments(layer: Layer, chosen: Integers, *, loud: int | None = None) -> Arguments:
    """Random input of the tokens of `chosen`, that of the token `loud` a hundred times as large."""
    random = np.random.default_rng(chosen.size)
    tokens, (outer, inner) = len(chosen), (layer.embedding_width, layer.expert_width)
    x = random.standard_normal((tokens, outer), np.float32)
    if loud is not None:
        x[loud] *= 100
    gate, up = (_blocks(random, layer.in_type, layer.experts, inner, outer) for _ in range(2))
    down = _blocks(random, layer.down_type, layer.experts, outer, inner)
    shares = random.uniform(0.1, 1.5, chosen.shape).astype(np.float32)
    shared = random.standard_normal((tokens, outer), np.float32)
    arrays = (mx.array(array) for array in (x, gate, up, down, chosen, shares, shared))
    return cast("Arguments", tuple(arrays))


def _weights(layer: Layer, arguments: Arguments) -> list[Doubles]:
    """Gate, up [X, F, E] and down [X, E, F], as the kernel multiplies them."""
    shape = (layer.experts, layer.expert_width, layer.embedding_width)
    kinds = (layer.in_type, layer.in_type, layer.down_type)
    shapes = (shape, shape, (shape[0], shape[2], shape[1]))
    return [
        _rounded(layer, dequantise(kind, np.array(raw).reshape(-1), each))
        for kind, raw, each in zip(kinds, arguments[1:4], shapes, strict=True)
    ]


def _rounded(layer: Layer, values: npt.NDArray[np.floating]) -> Doubles:
    return (values.astype(np.float16) if layer.half_hidden else values).astype(np.float64)


def _reference(layer: Layer, arguments: Arguments) -> Doubles:
    """Pair by pair in float64, rounded where the contract rounds."""
    gate, up, down = _weights(layer, arguments)
    x, _, _, _, chosen, shares, shared = (np.array(array) for array in arguments)
    y = shared.astype(np.float64)
    for token, values in enumerate(_rounded(layer, x)):
        for expert, share in zip(chosen[token], shares[token], strict=True):
            gated, upper = gate[expert] @ values, up[expert] @ values
            if layer.clamp > 1e-6:
                gated, upper = np.minimum(gated, layer.clamp), np.clip(upper, -layer.clamp, layer.clamp)
            with np.errstate(over="ignore"):
                hidden = gated / (1 + np.exp(-gated)) * upper * share
            y[token] += down[expert] @ _rounded(layer, hidden)
    return y


def _off(found: mx.array, expected: Doubles) -> float:
    """The largest difference, as a part of the largest expected value."""
    return float(np.abs(np.array(found) - expected).max() / np.abs(expected).max())


def _check(maker: Maker, layer: Layer, chosen: Integers, *, loud: int | None = None) -> None:
    arguments = _arguments(layer, chosen, loud=loud)
    off = _off(layer.build(maker)(*arguments), _reference(layer, arguments))
    # In float32 only the order of sums differs. With float16 a hidden value beside the middle of two float16
    # numbers can go to the other side: half a unit in 2^11 of one of the products.
    assert off <= (1e-4 if layer.half_hidden else 2e-6), off


def _random(layer: Layer, tokens: int) -> Integers:
    return np.random.default_rng(tokens).integers(0, layer.experts, (tokens, layer.used), np.int32)


def _counts(*counts: int) -> Integers:
    """[n, 1]: so many tokens for each expert, mixed up."""
    chosen = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return np.random.default_rng(4).permutation(chosen).reshape(-1, 1)


def _alone(maker: Maker, layer: Layer, tokens: int, taken: slice) -> None:
    """A token's result is the same, bit for bit, in any company."""
    x, gate, up, down, chosen, shares, shared = _arguments(layer, _random(layer, tokens))
    run = layer.build(maker)
    together = run(x, gate, up, down, chosen, shares, shared)
    alone = run(x[taken], gate, up, down, chosen[taken], shares[taken], shared[taken])
    np.testing.assert_array_equal(np.array(together)[taken], np.array(alone))


_SMALL = Layer(embedding_width=256)
_FLOAT = replace(_SMALL, half_hidden=False, in_type=TensorType.Q4_K, down_type=TensorType.Q4_K)
_WIDE = Layer(
    embedding_width=256, expert_width=512, used=3, in_type=TensorType.Q2_K, down_type=TensorType.IQ2_XXS
)
_ONE_EACH = replace(_FLOAT, used=1)

# What a mutant of a kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "two bits": lambda maker: _check(maker, Layer(), _random(Layer(), 40)),
    "four bits, float32": lambda maker: _check(maker, _FLOAT, _random(_FLOAT, 40)),
    "wide experts, types the other way round": lambda maker: _check(maker, _WIDE, _random(_WIDE, 30)),
    "counts around a tile": lambda maker: _check(
        maker, _ONE_EACH, _counts(TOKENS + 1, 0, TOKENS, 4, TOKENS - 1)
    ),
    "counts around a block": lambda maker: _check(maker, _ONE_EACH, _counts(7, 8, 9, 16, 24)),
    "all tokens to one expert": lambda maker: _check(maker, _ONE_EACH, np.full((70, 1), 4, np.int32)),
    "an expert twice": lambda maker: _check(maker, _FLOAT, np.repeat(_random(_ONE_EACH, 20), 2, axis=1)),
    "clamps": lambda maker: _check(maker, replace(_FLOAT, clamp=0.75), _random(_FLOAT, 20), loud=3),
    "a clamp that does not act": lambda maker: _check(
        maker, replace(_FLOAT, clamp=1e-6), _random(_FLOAT, 20)
    ),
    "one token": lambda maker: _check(maker, _FLOAT, _random(_FLOAT, 1)),
    "alone and together": lambda maker: _alone(maker, _FLOAT, 40, slice(11, 15)),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.parametrize("layer", [_SMALL, _FLOAT], ids=["float16", "float32"])
def test_rows_that_are_looked_at_stand_in_the_order_of_tokens(layer: Layer, maker: Maker) -> None:
    x, gate, up, down, chosen, shares, _ = _arguments(layer, _random(layer, 21))
    names = [name for name in layer.__dataclass_fields__ if name != "down_type"]
    rows = experts_prefill.build_rows(maker, **{name: getattr(layer, name) for name in names})
    store = plain.RawExperts(gate, up, down, layer.in_type, layer.down_type)
    found = rows(store, x, chosen, shares)
    expected = np.array(plain.expert_rows(store, x, chosen, shares, layer.clamp)).astype(np.float64)
    assert (found.dtype, found.shape) == (mx.float32, (21, layer.used, layer.expert_width))
    assert _off(found, expected) <= (2e-3 if layer.half_hidden else 2e-6)


@pytest.mark.long
@pytest.mark.parametrize("maker", [("full", 1)], ids=["full"], indirect=True)
@pytest.mark.parametrize(("number", "types"), list(enumerate(product(_SCALES, _SCALES))))
def test_every_pair_of_types(number: int, types: tuple[TensorType, TensorType], maker: Maker) -> None:
    """Every text of either kernel is among these, with float16 hidden vectors and without."""
    (in_type, down_type), half_hidden = types, number % 2 == 0
    layer = Layer(768, 512, 9, 4, in_type, down_type, half_hidden=half_hidden)
    _check(maker, layer, _random(layer, 75))


@pytest.mark.parametrize("tokens", [5, 40])
def test_fallback(tokens: int) -> None:
    layer = replace(_WIDE, half_hidden=False)
    arguments = _arguments(layer, _random(layer, tokens), loud=2)
    assert _off(layer.fallback()(*arguments), _reference(layer, arguments)) <= 2e-6


def test_examples(maker: Maker) -> None:
    for example in experts_prefill.examples():
        expected = np.array(example.fallback(*example.arguments)).astype(np.float64)
        assert _off(example.build(maker)(*example.arguments), expected) <= example.tolerance


@pytest.mark.parametrize(
    "layer", [Layer(embedding_width=288), Layer(expert_width=320), Layer(down_type=TensorType.MXFP4)]
)
def test_refuses(layer: Layer, maker: Maker) -> None:
    with pytest.raises(ValueError, match="expert"):
        layer.build(maker)
