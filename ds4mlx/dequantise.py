"""Quantised expert blocks to float32, in array operations: every type that routed experts may have.

Works on raw bytes, any number of leading axes. Must not know: tensor names, experts, files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mlx.core as mx
import numpy as np

from shared.gguf.types import TensorType, block_bytes
from shared.quant.iq2 import iq2_grid, iq2_signs

_MXFP4_VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)


def dequantise(type: TensorType, rows: mx.array) -> mx.array:
    """Values of raw rows: uint8 [..., row bytes] -> float32 [..., columns]. Spec: model §3.

    KeyError for a type that routed experts cannot have.
    """
    blocks = rows.reshape(-1, block_bytes(type))
    return _BLOCKS_TO_VALUES[type](blocks).reshape(*rows.shape[:-1], -1)


def _half(part: mx.array) -> mx.array:
    """One binary16 per block: uint8 [blocks, 2] -> float32 [blocks, 1]."""
    return part.view(mx.float16).astype(mx.float32)


def _q2_k(blocks: mx.array) -> mx.array:
    scales, planes = blocks[:, :16], blocks[:, 16:80].reshape(-1, 2, 1, 32)
    shifts = mx.array([0, 2, 4, 6], mx.uint8).reshape(1, 1, 4, 1)
    codes = ((planes >> shifts) & 3).reshape(-1, 16, 16).astype(mx.float32)
    step = _half(blocks[:, 80:82]) * (scales & 15).astype(mx.float32)
    minimum = _half(blocks[:, 82:84]) * (scales >> 4).astype(mx.float32)
    return step[:, :, None] * codes - minimum[:, :, None]


def _q4_k(blocks: mx.array) -> mx.array:
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = mx.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = mx.concatenate([middle & 63, (high >> 4) | ((middle >> 6) << 4)], axis=1)
    nibbles = blocks[:, 16:144].reshape(-1, 4, 1, 32)
    shifts = mx.array([0, 4], mx.uint8).reshape(1, 1, 2, 1)
    codes = ((nibbles >> shifts) & 15).reshape(-1, 8, 32).astype(mx.float32)
    step = _half(blocks[:, :2]) * scales.astype(mx.float32)
    minimum = _half(blocks[:, 2:4]) * minima.astype(mx.float32)
    return step[:, :, None] * codes - minimum[:, :, None]


def _iq2_xxs(blocks: mx.array) -> mx.array:
    groups = blocks[:, 2:].reshape(-1, 8, 8)
    magnitudes = _grid()[groups[:, :, :4]]
    words = groups[:, :, 4:].view(mx.uint32)
    signs = _signs()[(words >> mx.array([0, 7, 14, 21], mx.uint32)) & 127]
    step = _half(blocks[:, :2])[:, :, None] * ((words >> 28).astype(mx.float32) + 0.5) * 0.25
    return step[..., None] * signs * magnitudes


def _mxfp4(blocks: mx.array) -> mx.array:
    exponent = blocks[:, :1].astype(mx.uint32)
    # 2^(e-127) is the float32 with exponent field e; at e = 0 that is the subnormal 2^-127.
    scale = mx.where(exponent == 0, mx.array(0x00400000, mx.uint32), exponent << 23).view(mx.float32)
    codes = mx.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=1)
    return scale * mx.array(_MXFP4_VALUES, mx.float32)[codes]


@cache
def _grid() -> mx.array:
    """Magnitudes of the eight elements of each grid entry, float32 [256, 8]."""
    return mx.array(iq2_grid().astype(np.float32))


@cache
def _signs() -> mx.array:
    """Signs of the eight elements of an octet, float32 [128, 8]."""
    negative = (iq2_signs()[:, None] >> np.arange(8)) & 1
    return mx.array(np.where(negative, -1, 1).astype(np.float32))


_BLOCKS_TO_VALUES: dict[TensorType, Callable[[mx.array], mx.array]] = {
    TensorType.Q2_K: _q2_k,
    TensorType.Q4_K: _q4_k,
    TensorType.IQ2_XXS: _iq2_xxs,
    TensorType.MXFP4: _mxfp4,
}
