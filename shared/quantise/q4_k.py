"""Float rows to Q4_K: 4-bit codes in parts of 32, with 6-bit scales and minima. Spec: model §3."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared.quantise.affine import Affine, Array, Form, fit

_FORM = Form(part=32, code_limit=15, scale_limit=63)


def q4_k(values: Array, weights: Array) -> npt.NDArray[np.uint8]:
    """Blocks uint8 [n, 144] of `values` [n, 256], errors counted by `weights` [n, 256]."""
    return _packed(fit(values, weights, _FORM))


def _packed(block: Affine) -> npt.NDArray[np.uint8]:
    codes = block.codes.reshape(-1, 4, 2, 32)
    nibbles = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 128)
    scales, minima = block.scales, block.minima
    low = scales[:, :4] | scales[:, 4:] >> 4 << 6
    middle = minima[:, :4] | minima[:, 4:] >> 4 << 6
    high = scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4
    steps = np.stack((block.scale_step, block.minimum_step), axis=1).view(np.uint8)
    return np.concatenate((steps, low, middle, high, nibbles), axis=1)
