from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.experts import ExpertDimensions, RawExperts
from ds4mlx.kernels import run_experts
from ds4mlx.kernels.block_types import random_blocks
from ds4mlx.kernels.kernel import Maker
from ds4mlx.linear import Dimensions, HalfMatrix
from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise

_WIDTH, _COUNT, _USED = 256, 3, 3
_KIND = TensorType.Q2_K
_SIZES: dict[str, Any] = {
    "experts": ExpertDimensions(_KIND, _KIND, _COUNT, _WIDTH, _WIDTH),
    "shared_down": Dimensions("f16", 64, _WIDTH),
    "used": _USED,
    "clamp": 10.0,
}


@dataclass(slots=True)
class Recorder:
    """A maker that notes the name of every kernel that is launched, and the dtypes of its outputs."""

    maker: Maker
    launched: list[tuple[str, list[mx.Dtype]]] = field(default_factory=list)

    def __call__(self, **made: Any) -> Callable[..., list[mx.array]]:
        launch = self.maker(**made)

        def call(**arguments: Any) -> list[mx.array]:
            name = made["name"].removeprefix("ds4_").rsplit("_", 1)[0]
            self.launched.append((name, list(arguments["output_dtypes"])))
            return launch(**arguments)

        return call


def _arguments(tokens: int) -> tuple[Any, ...]:
    random = np.random.default_rng(tokens)
    raw = (mx.array(random_blocks(random, (_COUNT, _WIDTH), _WIDTH, _KIND)) for _ in range(3))
    gate, up, down = raw
    x, hidden, shared = (
        mx.array(random.standard_normal(shape, np.float32))
        for shape in ((tokens, _WIDTH), (tokens, 64), (_WIDTH, 64))
    )
    chosen = mx.array(random.integers(0, _COUNT, (tokens, _USED), np.int32))
    shares = mx.array(random.random((tokens, _USED), np.float32))
    store = RawExperts(gate, up, down, _KIND, _KIND)
    return x, store, chosen, shares, hidden, HalfMatrix(shared.astype(mx.float16))


def _expected(arguments: tuple[Any, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    x, store, chosen, shares, hidden, shared_down = arguments
    gate, up, down = (
        dequantise(_KIND, np.array(part).reshape(-1), (_COUNT, _WIDTH, _WIDTH)).astype(np.float64)
        for part in (store.gate, store.up, store.down)
    )
    x, chosen, shares, hidden = (np.array(part) for part in (x, chosen, shares, hidden))
    total = hidden.astype(np.float64) @ np.array(shared_down.weight).astype(np.float64).T
    for token, slots in enumerate(chosen):
        for expert, share in zip(slots, shares[token], strict=True):
            gated = np.minimum(gate[expert] @ x[token], 10)
            upper = np.clip(up[expert] @ x[token], -10, 10)
            total[token] += down[expert] @ (gated / (1 + np.exp(-gated)) * upper * share)
    return total


def _check(
    maker: Maker, tokens: int, quality: bool, tolerance: float, launches: list[tuple[str, list[mx.Dtype]]]
) -> None:
    recorder = Recorder(maker)
    arguments = _arguments(tokens)
    found = np.array(run_experts.build(recorder, **_SIZES, quality=quality)(*arguments))
    expected = _expected(arguments)
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()
    assert recorder.launched == launches


_DECODE = [("experts_decode_gate_up_q2_k", [mx.float32]), ("experts_decode_down_q2_k", [mx.float32])]


def _prefill(hidden: mx.Dtype) -> list[tuple[str, list[mx.Dtype]]]:
    return [
        ("experts_prefill_sort", [mx.int32, mx.int32]),
        ("experts_prefill_gate_up_q2_k", [hidden]),
        ("experts_prefill_down_q2_k", [mx.float32]),
        ("experts_prefill_add", [mx.float32]),
    ]


# A mutant of the dispatch, not of the kernels: those have tests of their own.
CASES: dict[str, Callable[[Maker], None]] = {
    "few pairs": partial(_check, tokens=10, quality=False, tolerance=5e-6, launches=_DECODE),
    "many pairs": partial(_check, tokens=11, quality=False, tolerance=2e-3, launches=_prefill(mx.float16)),
    "many pairs, quality": partial(
        _check, tokens=11, quality=True, tolerance=5e-6, launches=_prefill(mx.float32)
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_dispatch(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.parametrize("tokens", [1, 11])
def test_fallback(tokens: int) -> None:
    arguments = _arguments(tokens)
    found = np.array(run_experts.fallback(*arguments, clamp=10.0))
    expected = _expected(arguments)
    assert np.abs(found - expected).max() <= 5e-6 * np.abs(expected).max()


def test_examples_cover_every_kernel() -> None:
    """Each block type in both halves."""
    labels = [example.label for example in run_experts.examples()]
    for kind in ("IQ2_XXS", "Q2_K", "Q4_K"):
        assert len([label for label in labels if kind in label]) == 2


@pytest.mark.parametrize("kind", [TensorType.MXFP4, TensorType.Q8_0])
def test_refuses_a_type_without_a_kernel(kind: TensorType, maker: Maker) -> None:
    sizes = {**_SIZES, "experts": ExpertDimensions(kind, kind, _COUNT, _WIDTH, _WIDTH)}
    with pytest.raises(ValueError, match=f"type {kind.name}"):
        run_experts.build(maker, **sizes)
