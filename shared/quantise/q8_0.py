"""Float rows to Q8_0: signed bytes in blocks of 32 with a binary16 scale. Spec: model §3."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

BLOCK = 32


def q8_0(values: Array) -> npt.NDArray[np.uint8]:
    """Blocks uint8 [n, 34] of `values` [n, 32].

    The codes are chosen for the scale before it is rounded to binary16, and halves go away from zero: so does
    every other writer of this type, and equal weights make equal files.
    """
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, np.float32(1)), np.float32(0))
    codes = _round_away(values * inverse).astype(np.int8)
    stored = np.minimum(scale, np.float32(65504)).astype("<f2")
    return np.concatenate((stored.view(np.uint8), codes.view(np.uint8)), axis=1)


def _round_away(values: Array) -> Array:
    whole = np.trunc(values)
    rest = values - whole
    return whole + np.where(np.abs(rest) >= 0.5, np.sign(rest), np.float32(0))
