"""Float weights to the block formats that a model file needs: Q8_0 and MXFP4, the plainest of each kind.

For looking at a model in training through the engine. The file that is shipped is made by the product's own
quantisers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_BLOCK = 32
_MXFP4_STEPS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)  # where the next code is nearer


def q8_0(values: Array) -> Bytes:
    """Blocks of 32 as a binary16 scale and signed bytes, [blocks, 34]."""
    blocks = values.reshape(-1, _BLOCK).astype(np.float32)
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
    step = np.where(scale == 0, 1, scale.astype(np.float32))
    codes = np.clip(np.rint(blocks / step), -127, 127).astype(np.int8)
    return np.concatenate((scale.view(np.uint8), codes.view(np.uint8)), axis=1)


def mxfp4(values: Array) -> Bytes:
    """Blocks of 32 as a power-of-two exponent and 4-bit floats, [blocks, 17]."""
    blocks = values.reshape(-1, _BLOCK).astype(np.float32)
    largest = np.maximum(np.abs(blocks).max(axis=1, keepdims=True), np.float32(2.0**-100))
    mantissa, exponent = np.frexp(largest / np.float32(6.0))
    exponent = exponent - (mantissa == 0.5)
    scaled = np.ldexp(blocks, -exponent)
    codes = np.searchsorted(_MXFP4_STEPS, np.abs(scaled)).astype(np.uint8)
    codes |= (np.signbit(scaled) << 3).astype(np.uint8)
    packed = codes[:, :16] | (codes[:, 16:] << 4)
    return np.concatenate(((exponent + 127).astype(np.uint8), packed), axis=1)
