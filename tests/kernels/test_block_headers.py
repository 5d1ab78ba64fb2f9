from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from ds4mlx.kernels.block_types import (
    BLOCK_WEIGHTS,
    KERNEL_TYPES,
    PART_HEADERS,
    PIECE_HEADERS,
    SCALES_AT,
    iq2_magnitudes,
)
from ds4mlx.kernels.kernel import Kernel, Maker
from shared.gguf.types import TensorType, block_bytes
from shared.quant.dequantise import dequantise

_HERE = Path(__file__).parent
_COUNT = 24


def _blocks(kind: TensorType, extreme: bool) -> npt.NDArray[np.uint8]:
    """Random bits in every field; scales between 0.001 and 1 of either sign or, `extreme`, zeros, subnormal
    numbers and the largest."""
    random = np.random.default_rng(kind)
    blocks = random.integers(0, 256, (_COUNT, block_bytes(kind)), np.uint8)
    for at in SCALES_AT[kind]:
        scales = random.uniform(0.001, 1, _COUNT) * random.choice([-1, 1], _COUNT)
        if extreme:
            scales[:6] = 0.0, -0.0, 6e-8, -6e-5, 65504.0, -65504.0
        blocks[:, at : at + 2] = scales.astype(np.float16).view(np.uint8).reshape(_COUNT, 2)
    return blocks


def _run(
    maker: Maker, kind: TensorType, dtype: mx.Dtype, blocks: npt.NDArray[np.uint8], x: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    kernel = Kernel(
        name="block_probe",
        body=_HERE / "block_probe.metal",
        inputs=("blocks", "x", "magnitudes"),
        outputs=("expanded", "products"),
        functions=(*PART_HEADERS[kind], PIECE_HEADERS[kind][1]),
    )
    launch = kernel.specialise(maker, WEIGHT=dtype)
    count = len(blocks)
    expanded, products = launch(
        [mx.array(blocks), mx.array(x), iq2_magnitudes()],
        [(count, BLOCK_WEIGHTS), (count, 8)],
        [dtype, mx.float32],
        (16, count, 1),
        (16, 1, 1),
    )
    return np.array(expanded), np.array(products)


def _expands(maker: Maker, kind: TensorType, dtype: mx.Dtype, extreme: bool) -> None:
    """Float weights bit for bit, half weights rounded once."""
    blocks = _blocks(kind, extreme)
    expected = dequantise(kind, blocks.reshape(-1), (_COUNT, BLOCK_WEIGHTS))
    expanded, _ = _run(maker, kind, dtype, blocks, np.zeros(BLOCK_WEIGHTS, np.float32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(expanded, expected.astype(expanded.dtype))


def _multiplies(maker: Maker, kind: TensorType) -> None:
    """A block's parts add up to its product with x; one column at a time tells which part holds which."""
    blocks = _blocks(kind, extreme=False)
    weights = dequantise(kind, blocks.reshape(-1), (_COUNT, BLOCK_WEIGHTS)).astype(np.float64)
    random = np.random.default_rng(5)
    x = random.standard_normal(BLOCK_WEIGHTS).astype(np.float32)
    _, products = _run(maker, kind, mx.float32, blocks, x)
    scale = np.abs(weights).max(axis=1)
    assert (np.abs(products.sum(axis=1, dtype=np.float64) - weights @ x) <= 2e-4 * scale).all()


def _multiplies_columns(maker: Maker, kind: TensorType) -> None:
    """Every column belongs to one part and counts with its weight: x is 0 but in one column of each octet."""
    blocks = _blocks(kind, extreme=False)
    weights = dequantise(kind, blocks.reshape(-1), (_COUNT, BLOCK_WEIGHTS)).astype(np.float64)
    scale = np.abs(weights).max(axis=1)
    for column in range(8):
        x = np.zeros(BLOCK_WEIGHTS, np.float32)
        x[column::8] = 2.0 ** (np.arange(32) % 5)
        _, products = _run(maker, kind, mx.float32, blocks, x)
        assert (np.abs(products.sum(axis=1, dtype=np.float64) - weights @ x) <= 2e-4 * scale).all()


def _addresses(maker: Maker, kind: TensorType) -> None:
    """A row far beyond 2^32 bytes: neither rows nor the bytes of a row may be multiplied in 32 bits."""
    matrix, rows, row, blocks = 383, 7168, 7167, 2**16
    kernel = Kernel(
        name="row_probe",
        body=_HERE / "row_probe.metal",
        inputs=("weights",),
        outputs=("words",),
        functions=(PART_HEADERS[kind][0], "block_rows.metal"),
    )
    launch = kernel.specialise(maker, MATRIX=matrix, ROWS=rows, ROW=row, BLOCKS=blocks)
    (words,) = launch([mx.zeros(16, mx.uint8)], [(2,)], [mx.uint32], (1, 1, 1), (1, 1, 1))
    low, high = np.array(words).tolist()
    assert low + (high << 32) == (matrix * rows + row) * blocks * block_bytes(kind)


_CHECKS: dict[str, Callable[..., None]] = {
    "float weights": partial(_expands, dtype=mx.float32, extreme=False),
    "half weights": partial(_expands, dtype=mx.float16, extreme=False),
    "extreme scales": partial(_expands, dtype=mx.float32, extreme=True),
    "products": _multiplies,
    "products by column": _multiplies_columns,
    "addresses": _addresses,
}
# What a mutant of a header has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    f"{kind.name}: {label}": partial(check, kind=kind)
    for kind in KERNEL_TYPES
    for label, check in _CHECKS.items()
}


@pytest.mark.parametrize("case", CASES)
def test_header(case: str, maker: Maker) -> None:
    CASES[case](maker)
