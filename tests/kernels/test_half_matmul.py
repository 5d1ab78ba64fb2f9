from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ds4mlx.kernels import half_matmul
from ds4mlx.kernels.kernel import Maker
from tests.kernels.matrices import assert_product, half, numbers


def _check(maker: Maker, count: int, inputs: int, outputs: int, groups: int = 1) -> None:
    known, x = half(1, outputs, inputs, groups), numbers(2, count, groups * inputs)
    product = half_matmul.build(maker, inputs=inputs, outputs=outputs, groups=groups)
    assert_product(product(x, known.matrix.weight), x, known.weights, inputs)


def _same_bits_in_another_place(maker: Maker) -> None:
    """A token's result does not depend on its place in the step."""
    known, x = half(3, 40, 64), numbers(4, 67, 64)
    product = half_matmul.build(maker, inputs=64, outputs=40)
    whole = np.array(product(x, known.matrix.weight))
    np.testing.assert_array_equal(np.array(product(x[60:], known.matrix.weight)), whole[60:])


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one tile, one run of inputs": lambda maker: _check(maker, 64, 16, 64),
    "two tokens, few outputs": lambda maker: _check(maker, 2, 32, 8),
    "a token and an output beyond a tile": lambda maker: _check(maker, 65, 48, 65),
    "a token and an output short of a tile": lambda maker: _check(maker, 63, 32, 63),
    "quarters of a tile": lambda maker: _check(maker, 33, 32, 33),
    "groups": lambda maker: _check(maker, 9, 32, 40, groups=3),
    "groups of several tiles": lambda maker: _check(maker, 70, 16, 70, groups=2),
    "the same bits in another place": _same_bits_in_another_place,
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("shape", [(200, 256, 328), (130, 1024, 64)])
def test_more_tiles(shape: tuple[int, int, int], maker: Maker) -> None:
    _check(maker, *shape)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("count", [2, 20])
def test_fallback(count: int, groups: int) -> None:
    known, x = half(5, 24, 48, groups), numbers(6, count, groups * 48)
    assert_product(half_matmul.fallback(x, known.matrix.weight, groups=groups), x, known.weights, 48)


def test_ragged_inputs_are_refused(maker: Maker) -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        half_matmul.build(maker, inputs=40, outputs=64)
