"""The row that the caches hold, of a token or of a compressed window: how kernels and fallbacks make it.

A row [D] is normed with a weight, turned by its position's rotation, and then, where rows are rounded, its
channels before the rotary ones are rounded to FP8 in blocks of 64 and all of it to float16. A threadgroup
holds one row: a thread a pair of channels, a simdgroup 64 channels, which are one FP8 block. Spec: model
§4.5, step 3.
Must not know: weights, caches.
"""

from __future__ import annotations

import mlx.core as mx

from ds4mlx.kernels.kernel import Constant
from ds4mlx.rounding import round_fp8_row
from ds4mlx.step import rotate

FUNCTIONS = ("sums.metal", "rotate.metal", "rounding.metal", "cached_row.metal")
THREADS = 256  # of the threadgroup that holds a row
_SIMD_WIDTH = 32
_FP8_BLOCK = 64


def cached_row(
    values: mx.array, norm: mx.array, rotation: mx.array, *, rotary_dim: int, epsilon: float, rounds: bool
) -> mx.array:
    """Rows float32 [n, D] as they are stored, float16 if `rounds`. `rotation` float32 [n, D] has a cosine and
    a sine for each pair of channels."""
    rows = rotate(mx.fast.rms_norm(values, norm, epsilon), rotation.view(mx.complex64))
    return round_fp8_row(rows, rotary_dim).astype(mx.float16) if rounds else rows


def row_dtype(rounds: bool) -> mx.Dtype:
    return mx.float16 if rounds else mx.float32


def cached_row_constants(
    *, head_dim: int, rotary_dim: int, epsilon: float, rounds: bool
) -> dict[str, Constant]:
    """What `cached_row.metal` is specialised with. Raises ValueError for a row that it cannot hold."""
    if (
        head_dim % 4
        or rotary_dim % 2
        or not 0 < rotary_dim <= head_dim
        or (head_dim - rotary_dim) % _FP8_BLOCK
    ):
        raise ValueError(
            f"rows of {head_dim} channels, {rotary_dim} of them rotary: the first must be a multiple of 4, "
            f"the others even and in number a multiple of {_FP8_BLOCK} fewer"
        )
    return {
        "HEAD_DIM": head_dim,
        "FP8_BLOCKS": (head_dim - rotary_dim) // _FP8_BLOCK,
        "ROUNDS": rounds,
        "ROW": row_dtype(rounds),
        "EPSILON": epsilon,
        "SIMDGROUPS": THREADS // _SIMD_WIDTH,
        "PAIRS_EACH": -(-head_dim // (2 * THREADS)),
    }
