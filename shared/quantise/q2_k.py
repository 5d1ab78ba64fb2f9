"""Float rows to Q2_K: 2-bit codes in parts of 16, with 4-bit scales and minima. Spec: model §3."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared.quantise.affine import Affine, Array, Form, fit

_FORM = Form(part=16, code_limit=3, scale_limit=15)


def q2_k(values: Array, weights: Array) -> npt.NDArray[np.uint8]:
    """Blocks uint8 [n, 84] of `values` [n, 256], errors counted by `weights` [n, 256]."""
    return _packed(fit(values, weights, _FORM))


def _packed(block: Affine) -> npt.NDArray[np.uint8]:
    planes = block.codes.reshape(-1, 2, 4, 32)
    quads = planes[:, :, 0] | planes[:, :, 1] << 2 | planes[:, :, 2] << 4 | planes[:, :, 3] << 6
    steps = np.stack((block.scale_step, block.minimum_step), axis=1).view(np.uint8)
    return np.concatenate((block.scales | block.minima << 4, quads.reshape(-1, 64), steps), axis=1)
