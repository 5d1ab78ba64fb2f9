from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import project_swiglu
from ds4mlx.kernels.kernel import Maker
from ds4mlx.linear import Dimensions
from tests.kernels.matrices import Doubles, Known, assert_product, exact, half, numbers, q8_0

Storage = Callable[..., Known]


def _swiglu(gate: Doubles, up: Doubles | float, clamp: float) -> Doubles:
    if clamp > 0:
        gate, up = np.minimum(gate, clamp), np.clip(up, -clamp, clamp)
    product: Doubles = gate / (1 + np.exp(-gate)) * up
    return product


def _assert_hidden(hidden: mx.array, x: mx.array, gate_up: Known, clamp: float) -> None:
    """Float32 sums move hidden by their error in gate times at most 1.1 |up|, the steepest that silu gets,
    and by their error in up times |silu(gate)|; SwiGLU itself adds a few roundings."""
    gate, up = np.split(exact(x, gate_up.weights), 2, axis=1)
    gate_error, up_error = np.split(exact(mx.abs(x), np.abs(gate_up.weights)), 2, axis=1)
    expected = _swiglu(gate, up, clamp)
    bounded = np.minimum(np.abs(up), clamp) if clamp else np.abs(up)
    inputs = gate_up.weights.shape[2]
    moved: Doubles = 1.1 * gate_error * bounded + up_error * np.abs(_swiglu(gate, 1.0, clamp))
    allowed = 2.0**-24 * ((16 + inputs / 256) * moved + 8 * np.abs(expected))
    assert hidden.dtype == mx.float32
    assert hidden.shape == expected.shape
    assert np.all(np.abs(np.array(hidden, np.float64) - expected) <= allowed)


def _check(
    maker: Maker, gate_up: Known, router: Known, clamp: float = 10.0, count: int = 1, scale: float = 1.0
) -> None:
    x = scale * numbers(1, count, router.weights.shape[2])
    both = project_swiglu.build(
        maker, gate_up=gate_up.matrix.dimensions, router=router.matrix.dimensions, clamp=clamp
    )
    hidden, logits = both(x, gate_up.matrix, router.matrix)
    _assert_hidden(hidden, x, gate_up, clamp if clamp > 1e-6 else 0)
    assert_product(logits, x, router.weights, 16 + router.weights.shape[2] / 256)


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "Q8_0 and float16": lambda maker: _check(maker, q8_0(2, 32, 96), half(3, 8, 96)),
    "an odd width, ragged experts": lambda maker: _check(maker, q8_0(4, 34, 64), half(5, 10, 64)),
    "float16 and Q8_0": lambda maker: _check(maker, half(6, 30, 64), q8_0(7, 9, 64)),
    # Sums of about 190: the clamps act on most of them.
    "sums beyond the clamp": lambda maker: _check(maker, q8_0(8, 80, 64), half(9, 8, 64), scale=20),
    "no clamp": lambda maker: _check(maker, q8_0(10, 32, 64), half(11, 8, 64), clamp=1e-6, scale=20),
    "many tokens": lambda maker: _check(maker, q8_0(12, 32, 64), half(13, 8, 64), count=3),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
def test_inputs_of_a_published_shape(maker: Maker) -> None:
    _check(maker, q8_0(14, 70, 4096), half(15, 34, 4096))


def test_fallback() -> None:
    gate_up, router, x = q8_0(16, 24, 64), half(17, 8, 64), numbers(18, 20, 64)
    hidden, logits = project_swiglu.fallback(x, gate_up.matrix, router.matrix, clamp=0.5)
    _assert_hidden(hidden, x, gate_up, 0.5)
    assert_product(logits, x, router.weights, 64)


@pytest.mark.parametrize(
    ("gate_up", "router"),
    [
        (Dimensions("q8_0", 64, 64), Dimensions("f16", 96, 8)),
        (Dimensions("q8_0", 64, 65), Dimensions("f16", 64, 8)),
        (Dimensions("q8_0", 64, 64, 2), Dimensions("f16", 64, 8)),
    ],
)
def test_refused(gate_up: Dimensions, router: Dimensions, maker: Maker) -> None:
    with pytest.raises(ValueError, match="one input"):
        project_swiglu.build(maker, gate_up=gate_up, router=router, clamp=10.0)
