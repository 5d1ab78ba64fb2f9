"""Rotary position tables, made on the host and shared by every backend.

Owns the frequencies (base and YaRN mixing per layer kind) and the cosines and sines of positions. The angle
is formed in float64: at positions near 10^6 a float32 product would be off by up to 0.03 radian in the fast
pairs. All users (queries, rows, compressed rows, inverse rotation) must take the same tables.
Must not know: weights, caches, array libraries other than NumPy.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from shared.model.shape import ModelShape


@cache
def rotary_frequencies(shape: ModelShape, ratio: int) -> npt.NDArray[np.float64]:
    """Radians per position of each pair, float64 [rotary_dim / 2], for a layer of compression `ratio`.

    Window-only layers (ratio 0) use the plain base; compressed layers use their own base and YaRN scaling
    without a magnitude factor. Spec: model §4.2.
    """
    pairs = np.arange(shape.rotary_dim // 2, dtype=np.float64)
    base = shape.rope_base if ratio == 0 else shape.compress_rope_base
    plain = base ** (-2.0 * pairs / shape.rotary_dim)
    if ratio == 0:
        frequencies = plain
    else:
        low = max(0, math.floor(_turning_pair(shape, base, shape.yarn_beta_fast)))
        high = min(shape.rotary_dim - 1, math.ceil(_turning_pair(shape, base, shape.yarn_beta_slow)))
        kept = 1.0 - np.clip((pairs - low) / max(high - low, 0.001), 0.0, 1.0)
        frequencies = plain / shape.rope_scale * (1.0 - kept) + plain * kept
    frequencies.setflags(write=False)
    return frequencies


def rope_tables(
    shape: ModelShape, ratio: int, positions: npt.ArrayLike
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Cosines and sines, each float32 [n, rotary_dim / 2], for integer `positions` [n].

    A pair (x0, x1) of the last `rotary_dim` channels turns to (x0 cos - x1 sin, x0 sin + x1 cos); the inverse
    rotation negates the sine. Spec: model §4.2.
    """
    angles = np.asarray(positions, dtype=np.float64)[:, None] * rotary_frequencies(shape, ratio)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _turning_pair(shape: ModelShape, base: float, rotations: float) -> float:
    """The (fractional) pair that makes `rotations` turns over the original context."""
    wavelengths = shape.rope_original_context / (rotations * 2.0 * math.pi)
    return shape.rotary_dim * math.log(wavelengths) / (2.0 * math.log(base))
