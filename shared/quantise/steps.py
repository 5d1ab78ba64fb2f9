"""The step of a block in binary16, while the block itself is scaled by a power of two.

Blocks are worked on with their largest element between a half and one, so that nothing overflows or
vanishes; only the step has to know how large they really are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Exponents = npt.NDArray[np.int32]

_LARGEST_HALF = np.float32(65504.0)


def scaled(blocks: Array) -> tuple[Array, Exponents]:
    """Blocks [n, 256] divided by 2^exponent so that the largest element is below 1, and the exponents [n]."""
    exponent = np.frexp(np.abs(blocks).max(axis=1))[1]
    return np.ldexp(blocks, -exponent[:, None]), exponent


def rounded(steps: Array, exponent: Exponents) -> Array:
    """Steps [n] of scaled blocks as they will be when binary16 has held the real ones."""
    held = stored(steps, exponent).astype(np.float32)
    result: Array = np.ldexp(held, -exponent)
    return result


def stored(steps: Array, exponent: Exponents) -> npt.NDArray[np.float16]:
    """The real steps [n] in binary16, as a file holds them; too large ones become the largest."""
    return np.minimum(np.ldexp(steps, exponent), _LARGEST_HALF).astype("<f2")
