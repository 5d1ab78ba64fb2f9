"""Matrix products, by whichever library multiplies faster where the numbers are.

MLX's CPU build for Linux brings the reference BLAS (2 to 5 GFLOP/s measured); NumPy brings a tuned one. Large
products on the CPU device therefore go through NumPy, on the arrays' own memory; everything else stays in
the lazy graph. Must not know: what is multiplied.
"""

from __future__ import annotations

import sys
from functools import cache

import mlx.core as mx
import numpy as np

# Tokens from which a product is worth leaving the graph for. One-token steps must never leave it.
_HOST_TOKENS = 16


def multiply(a: mx.array, b: mx.array, tokens: int, *, plus: mx.array | None = None) -> mx.array:
    """a @ b for float32 a [..., n, k] and b [..., k, m]; leading axes must be equal or absent. `plus`
    [1, m] is added to every row.

    `tokens` is how many tokens the rows of `a` belong to.
    """
    if tokens < _HOST_TOKENS or not _multiplies_on_host():
        return a @ b if plus is None else mx.addmm(plus, a, b)
    product = mx.array(np.matmul(np.asarray(a), np.asarray(b)))
    return product if plus is None else product + plus


@cache
def _multiplies_on_host() -> bool:
    return sys.platform == "linux" and mx.default_device() == mx.Device(mx.cpu)
