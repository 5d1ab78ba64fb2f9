from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise

mx = pytest.importorskip("mlx.core")

from ds4mlx.experts import (  # noqa: E402
    ExpertDimensions,
    Mxfp4Experts,
    RawExperts,
    expand,
    expert_rows,
    pack_mxfp4,
    run_experts,
    run_sorted,
)

COUNT, WIDTH, EXPERT_WIDTH = 4, 64, 96
Doubles = npt.NDArray[np.float64]


def _rows(random: np.random.Generator, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Random codes, exponents of weights around 1 / 8."""
    blocks = random.integers(0, 256, (COUNT, rows, columns // 32, 17), np.uint8)
    blocks[..., 0] = random.integers(122, 126, blocks.shape[:-1])
    return blocks.reshape(COUNT, rows, -1)


def _raw() -> tuple[RawExperts, list[Doubles]]:
    random = np.random.default_rng(6)
    sizes = [(EXPERT_WIDTH, WIDTH), (EXPERT_WIDTH, WIDTH), (WIDTH, EXPERT_WIDTH)]
    parts = [_rows(random, *size) for size in sizes]
    weights = [
        dequantise(TensorType.MXFP4, part.reshape(-1), (COUNT, *size)).astype(np.float64)
        for part, size in zip(parts, sizes, strict=True)
    ]
    gate, up, down = (mx.array(part) for part in parts)
    return RawExperts(gate, up, down, TensorType.MXFP4, TensorType.MXFP4), weights


def _expected(weights: list[Doubles], x: Doubles, chosen: npt.NDArray[np.int32], shares: Doubles) -> Doubles:
    gate, up, down = weights
    total = np.zeros((len(x), WIDTH))
    for token, slots in enumerate(chosen):
        for expert, share in zip(slots, shares[token], strict=True):
            gated, upper = np.minimum(gate[expert] @ x[token], 2), np.clip(up[expert] @ x[token], -2, 2)
            total[token] += down[expert] @ (gated / (1 + np.exp(-gated)) * upper * share)
    return total


def test_mxfp4_weights_stay_as_they_are() -> None:
    raw, (gate, up, down) = _raw()
    packed = pack_mxfp4(raw)
    for expert in range(COUNT):
        gate_up, back = packed.one(expert)
        assert gate_up.dtype == back.dtype == mx.float32
        np.testing.assert_array_equal(np.array(gate_up).T, np.concatenate([gate[expert], up[expert]]))
        np.testing.assert_array_equal(np.array(back).T, down[expert])
    parts = (packed.gate_up, packed.gate_up_scales, packed.down, packed.down_scales)
    assert sum(part.nbytes for part in parts) == raw.gate.nbytes + raw.up.nbytes + raw.down.nbytes


@pytest.mark.parametrize("exponent", [2, 100, 127, 200])
def test_mxfp4_of_every_magnitude(exponent: int) -> None:
    """Each code with exponents far apart."""
    block = np.concatenate([[exponent], np.arange(16) * 17]).astype(np.uint8)
    part = mx.array(np.tile(block, (1, 32, 1)))
    packed = pack_mxfp4(RawExperts(part, part, part, TensorType.MXFP4, TensorType.MXFP4))
    expected = dequantise(TensorType.MXFP4, np.tile(block, 32), (32, 32))
    np.testing.assert_array_equal(np.array(packed.one(0)[1]).T, expected)


_RUNS: dict[str, Callable[..., Any]] = {
    "raw": run_experts,
    "mxfp4": lambda raw, *rest: run_experts(pack_mxfp4(raw), *rest),
    "mxfp4, sorted": lambda raw, *rest: run_sorted(pack_mxfp4(raw), *rest),
    "expanded": lambda raw, *rest: run_experts(expand(raw), *rest),
}


@pytest.mark.parametrize("tokens", [1, 3, 12, 40])
@pytest.mark.parametrize("storage", _RUNS)
def test_every_storage_computes_the_experts(storage: str, tokens: int) -> None:
    raw, weights = _raw()
    random = np.random.default_rng(tokens)
    x = random.standard_normal((tokens, WIDTH)).astype(np.float32)
    chosen = random.integers(0, COUNT - 1, (tokens, 3), np.int32)  # the last expert is never named
    shares = random.random((tokens, 3)).astype(np.float32)
    found = _RUNS[storage](raw, mx.array(x), mx.array(chosen), mx.array(shares), 2.0)
    expected = _expected(weights, x.astype(np.float64), chosen, shares.astype(np.float64))
    assert found.dtype == mx.float32
    assert np.abs(np.array(found) - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("tokens", [1, 40])
@pytest.mark.parametrize("stored", [lambda raw: raw, pack_mxfp4, expand], ids=["raw", "mxfp4", "expanded"])
def test_rows_of_experts_are_what_their_last_matrix_multiplies(
    stored: Callable[[RawExperts], Any], tokens: int
) -> None:
    raw, (gate, up, _) = _raw()
    random = np.random.default_rng(tokens)
    x = random.standard_normal((tokens, WIDTH)).astype(np.float32)
    chosen = random.integers(0, COUNT - 1, (tokens, 3), np.int32)
    shares = random.random((tokens, 3)).astype(np.float32)
    found = np.array(expert_rows(stored(raw), mx.array(x), mx.array(chosen), mx.array(shares), 2.0))
    assert (found.dtype, found.shape) == (np.float32, (tokens, 3, EXPERT_WIDTH))
    for token, slot in np.ndindex(chosen.shape):
        expert, values = chosen[token, slot], x[token].astype(np.float64)
        gated, upper = np.minimum(gate[expert] @ values, 2), np.clip(up[expert] @ values, -2, 2)
        expected = gated / (1 + np.exp(-gated)) * upper * shares[token, slot]
        np.testing.assert_allclose(found[token, slot], expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_many_tokens_go_through_one_sorted_product_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noted(store: Mxfp4Experts, x: Any, *_: object) -> Any:
        calls.append(x.shape[0])
        return x

    monkeypatch.setattr("ds4mlx.experts._multiplies_quantised", lambda: True)
    monkeypatch.setattr("ds4mlx.experts.run_sorted", noted)
    raw, _ = _raw()
    for tokens in (8, 9):
        chosen = mx.zeros((tokens, 4), mx.int32)
        run_experts(pack_mxfp4(raw), mx.zeros((tokens, WIDTH)), chosen, mx.ones((tokens, 4)), 2.0)
    assert calls == [9]


def test_dimensions() -> None:
    raw, _ = _raw()
    kind = TensorType.MXFP4
    assert raw.dimensions == ExpertDimensions(kind, kind, COUNT, WIDTH, EXPERT_WIDTH)
