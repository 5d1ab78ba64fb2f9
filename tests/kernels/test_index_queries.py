from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels import index_queries
from ds4mlx.kernels.kernel import HEADERS, Maker, plain_text
from shared.quant.rounding import hadamard128, round_fp4
from tests.kernels.row_reference import Array, array, assert_close, rotation_table, turned
from tests.support.golden import golden_arrays

CLOSE = 2e-7


def _check(maker: Maker, heads: int, head_dim: int, count: int) -> None:
    _check_one(partial(index_queries.build, maker, heads=heads, head_dim=head_dim), heads, head_dim, count)


def _check_one(
    make: Callable[..., index_queries.IndexQueries], heads: int, head_dim: int, count: int
) -> None:
    """What `make(rounds=...)` gives."""
    random = np.random.default_rng(heads)
    projected = random.standard_normal((count, heads, 128), np.float32)
    projected *= np.exp2(random.integers(-20, 20, (count, heads, 1))).astype(np.float32)
    rotation = rotation_table(random, count, head_dim, 64)
    arguments = mx.array(projected.reshape(count, -1)), mx.array(rotation)
    found = array(make(rounds=False)(*arguments))
    for vector, expected in zip(
        found.reshape(-1, 128), turned(projected, rotation[:, None]).reshape(-1, 128), strict=True
    ):
        assert_close(vector, expected, CLOSE)
    rounded = array(make(rounds=True)(*arguments))
    np.testing.assert_array_equal(rounded, round_fp4(hadamard128(found)))


def _check_golden(maker: Maker) -> None:
    vectors = golden_arrays("vectors.npz")
    count = len(vectors["indexer_in"])
    still = rotation_table(np.random.default_rng(1), count, 128, 0)
    make = index_queries.build(maker, heads=1, head_dim=128, rounds=True)
    found = make(mx.array(vectors["indexer_in"]), mx.array(still))
    np.testing.assert_array_equal(array(found)[:, 0], vectors["indexer_out"])


def _edge_vectors() -> Array:
    """Blocks of FP4 whose largest number is at a doubling of the scale, below its floor, or zero; ties."""
    codes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 0.2], np.float32)
    block = np.concatenate((codes, -codes))
    above = np.where(abs(block) == 6, np.nextafter(block, 2 * block), block)
    scaled = [block * np.float32(2.0**exponent) for exponent in (-123, -122, -31, 0, 30, 122)]
    scaled += [above * np.float32(2.0**exponent) for exponent in (-30, 0, 3)]
    # Every lane of a block, and each of its numbers, may hold the largest number.
    for place in range(32):
        scaled.append(np.where(abs(block) > 1, 0, block))
        scaled[-1][place] = 6
    # Below the floor of the scale. Not below 2^-126, as a GPU may take smaller numbers for 0.
    least = np.array([1, 1.25, 1.5, 1.75, 2.5, 3, -1.25, -3], np.float32) * np.float32(2.0**-126)
    scaled += [block / 6, np.zeros(32), np.tile(least, 4), np.tile(2 * least, 4), np.full(32, least[1])]
    random = np.random.default_rng(3).standard_normal((-len(scaled) % 4, 32))
    return np.array([*scaled, *random], np.float32).reshape(-1, 128)


def _check_edges(maker: Maker) -> None:
    """The rounding alone: no vector has the edges after a transform."""
    vectors = _edge_vectors()
    kernel = maker(
        name="round_fp4_alone",
        input_names=["vectors"],
        output_names=["rounded"],
        source="""
            const uint place = thread_position_in_grid.x;
            ((device float4*)rounded)[place] = round_fp4(((const device float4*)vectors)[place]);
        """,
        header=plain_text(HEADERS / "rounding.metal") + plain_text(HEADERS / "fp4.metal"),
    )
    (found,) = kernel(
        inputs=[mx.array(vectors)],
        output_shapes=[vectors.shape],
        output_dtypes=[mx.float32],
        grid=(vectors.size // 4, 1, 1),
        threadgroup=(32, 1, 1),
    )
    np.testing.assert_array_equal(array(found), round_fp4(vectors))


# What a mutant of the kernel has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "golden vectors": _check_golden,
    "edges of FP4": _check_edges,
    "one head": partial(_check, heads=1, head_dim=192, count=1),
    "a group that is not full": partial(_check, heads=5, head_dim=128, count=3),
}
LONG_CASES: dict[str, Callable[[Maker], None]] = {
    "the published shape": partial(_check, heads=64, head_dim=512, count=2),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)


@pytest.mark.long
@pytest.mark.parametrize("case", LONG_CASES)
def test_kernel_of_published_shapes(case: str, maker: Maker) -> None:
    LONG_CASES[case](maker)


def test_fallback() -> None:
    _check_one(partial(partial, index_queries.fallback), heads=3, head_dim=192, count=4)


@pytest.mark.parametrize("head_dim", [130, 64])
def test_refused_sizes(head_dim: int, maker: Maker) -> None:
    with pytest.raises(ValueError, match=f"rotations of {head_dim} numbers"):
        index_queries.build(maker, heads=2, head_dim=head_dim, rounds=True)
