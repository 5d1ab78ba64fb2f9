from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from ds4mlx.kernels import project
from ds4mlx.kernels.kernel import Kernel, Maker
from ds4mlx.linear import Dimensions, FloatMatrix
from tests.kernels.matrices import Known, assert_product, half, numbers, q8_0

Storage = Callable[..., Known]

FAR_ROWS = Kernel(
    name="far_rows",
    body=Path(__file__).parent / "far_rows.metal",
    inputs=("x", "weights", "scales"),
    outputs=("y",),
    functions=("q8_0.metal", "f16.metal"),
)


def _roundings(inputs: int) -> float:
    return 16 + inputs / 256


def _one(maker: Maker, storage: Storage, inputs: int, outputs: int, groups: int = 1, count: int = 1) -> None:
    known, x = storage(1, outputs, inputs, groups), numbers(2, count, groups * inputs)
    y, nothing = project.build(maker, first=known.matrix.dimensions)(x, known.matrix)
    assert_product(y, x, known.weights, _roundings(inputs))
    assert nothing is None


def _two(maker: Maker, first: Known, second: Known, count: int = 1) -> None:
    groups, _, inputs = first.weights.shape
    x = numbers(3, count, groups * inputs)
    both = project.build(maker, first=first.matrix.dimensions, second=second.matrix.dimensions)
    for y, known in zip(both(x, first.matrix, second.matrix), (first, second), strict=True):
        # Many tokens may be added up in any order.
        assert_product(y, x, known.weights, _roundings(inputs) if count == 1 else inputs)


def _far_rows(maker: Maker, storage: Storage) -> None:
    """Rows whose offset in bytes needs more than 32 bits."""
    rows = 8
    known, x = storage(16, rows, 32), numbers(17, 1, 32)
    weights, scales = known.matrix.operands
    launch = FAR_ROWS.specialise(
        maker, ROWS=rows, INPUTS=32, FAR_BITS=33, NUMBERS=weights.size // rows, SCALES=scales.size // rows
    )
    group = (32, 1, 1)
    (y,) = launch([x, weights, scales], ((1, rows),), (mx.float32,), group, group)
    assert_product(y, x, known.weights, _roundings(32))


# What a mutant of the kernels has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "Q8_0, one block an output": lambda maker: _one(maker, q8_0, 32, 8),
    "Q8_0, outputs short of a run": lambda maker: _one(maker, q8_0, 64, 7),
    "Q8_0, an output beyond a run": lambda maker: _one(maker, q8_0, 96, 5),
    "Q8_0, more blocks than lanes take at once": lambda maker: _one(maker, q8_0, 544, 6),
    "Q8_0, groups": lambda maker: _one(maker, q8_0, 64, 6, groups=3),
    "float16, inputs of four lanes": lambda maker: _one(maker, half, 32, 8),
    "float16, more inputs than lanes take at once": lambda maker: _one(maker, half, 288, 5),
    "float16, groups": lambda maker: _one(maker, half, 32, 8, groups=2),
    "Q8_0 and float16": lambda maker: _two(maker, q8_0(4, 9, 96), half(5, 6, 96)),
    "float16 and Q8_0": lambda maker: _two(maker, half(6, 11, 64), q8_0(7, 13, 64)),
    "two of Q8_0 in groups": lambda maker: _two(maker, q8_0(8, 5, 64, 2), q8_0(9, 6, 64, 2)),
    "Q8_0, far rows": lambda maker: _far_rows(maker, q8_0),
    "float16, far rows": lambda maker: _far_rows(maker, half),
    "many tokens, Q8_0 and float16": lambda maker: _two(maker, q8_0(10, 9, 64), half(11, 66, 64), count=3),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.parametrize("storage", [q8_0, half])
@pytest.mark.parametrize("count", [2, 20])
def test_groups_of_many_tokens(storage: Storage, count: int, maker: Maker) -> None:
    known, x = storage(12, 16, 64, 3), numbers(13, count, 3 * 64)
    y, _ = project.build(maker, first=known.matrix.dimensions)(x, known.matrix)
    assert_product(y, x, known.weights, 64)


@pytest.mark.long
@pytest.mark.parametrize("storage", [q8_0, half])
def test_inputs_of_a_published_shape(storage: Storage, maker: Maker) -> None:
    _one(maker, storage, 7168, 70)


def test_one_token_is_one_launch(maker: Maker) -> None:
    launches = []

    def counting(**kernel: Any) -> Callable[..., list[mx.array]]:
        launch = maker(**kernel)

        def launched(**call: Any) -> list[mx.array]:
            launches.append(kernel["name"])
            return launch(**call)

        return launched

    _two(counting, q8_0(14, 8, 64), half(15, 8, 64))
    assert len(launches) == 1


def test_fallback() -> None:
    first, second, x = q8_0(18, 12, 64), half(19, 10, 64), numbers(20, 20, 64)
    for y, known in zip(project.fallback(x, first.matrix, second.matrix), (first, second), strict=True):
        assert_product(y, x, known.weights, 64)
    grouped, x = half(21, 6, 32, 2), numbers(22, 3, 64)
    y, nothing = project.fallback(x, grouped.matrix, groups=2)
    assert_product(y, x, grouped.weights, 64)
    assert nothing is None


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (FloatMatrix(mx.zeros((64, 64))).dimensions, None, "float32"),
        (Dimensions("q8_0", 48, 64), None, "multiple of 32"),
        (Dimensions("f16", 32, 4), None, "at least 256"),
        (Dimensions("f16", 64, 64), Dimensions("q8_0", 32, 64), "one input"),
        (Dimensions("f16", 64, 64), Dimensions("q8_0", 64, 64, 2), "one input"),
    ],
)
def test_refused(first: Dimensions, second: Dimensions | None, reason: str, maker: Maker) -> None:
    with pytest.raises(ValueError, match=reason):
        project.build(maker, first=first, second=second)
