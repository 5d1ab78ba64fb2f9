from __future__ import annotations

import numpy as np
import pytest

from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.quant.dequantise import dequantise as reference

mx = pytest.importorskip("mlx.core")

from ds4mlx.dequantise import dequantise  # noqa: E402

TYPES = [TensorType.IQ2_XXS, TensorType.Q2_K, TensorType.Q4_K, TensorType.MXFP4]


@pytest.mark.parametrize("kind", TYPES)
def test_any_bytes_as_the_reference(kind: TensorType) -> None:
    data = np.random.default_rng(3).integers(0, 256, (2, 7, 4 * block_bytes(kind)), dtype=np.uint8)
    blocks = data.reshape(-1, block_bytes(kind))
    if kind is TensorType.MXFP4:
        blocks[:, 0] = np.arange(len(blocks)) % 200  # exponents whose values are finite and normal
        blocks[0, 0] = 4
    else:  # binary16 fields: no infinities or NaNs
        halves = {TensorType.IQ2_XXS: (1,), TensorType.Q2_K: (81, 83), TensorType.Q4_K: (1, 3)}[kind]
        blocks[:, halves] &= 0xBB
    ours = np.array(dequantise(kind, mx.array(data)))
    assert ours.shape == (2, 7, 4 * block_elements(kind))
    normal = reference(kind, data.reshape(-1), ours.shape)
    # Values below the normal range may be flushed to zero.
    assert np.abs(ours - normal).max() <= 2.0**-126
    large = np.abs(normal) > 2.0**-120
    assert np.array_equal(ours[large], normal[large])
