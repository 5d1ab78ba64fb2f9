"""Small random inputs on which kernels that make rows prove themselves."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

# Before rounding, a device's rows may differ from the fallback's by this part of the largest.
CLOSE = 5e-6
# Rounding to float16 can then differ by one step. Seeds are such that no number is near a tie of FP8 or FP4.
ONE_STEP = 2.0**-10


def normal(random: np.random.Generator, *shape: int) -> mx.array:
    return mx.array(random.standard_normal(shape, np.float32))


def turns(random: np.random.Generator, count: int, head_dim: int, rotary_dim: int) -> mx.array:
    """A rotation float32 [count, head_dim] by any angles of the last `rotary_dim` channels."""
    angles = np.zeros((count, head_dim // 2), np.float32)
    angles[:, -rotary_dim // 2 :] = random.uniform(-3.1, 3.1, (count, rotary_dim // 2))
    return mx.array(np.stack((np.cos(angles), np.sin(angles)), axis=-1).reshape(count, head_dim))


def numbers(start: int, count: int) -> mx.array:
    return mx.array([start, count, 0, 0, 0, 0, 0, 0], mx.int32)
