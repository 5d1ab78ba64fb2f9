"""The block types that kernels can read routed experts from.

Must not know: experts, layers, files.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from shared.gguf.types import TensorType
from shared.quant.iq2 import iq2_grid

# Header of each type. Their names are the same in all: one kernel text serves every type.
BLOCK_HEADERS = {
    TensorType.IQ2_XXS: "iq2_xxs.metal",
    TensorType.Q2_K: "q2_k.metal",
    TensorType.Q4_K: "q4_k.metal",
}
BLOCK_WEIGHTS = 256


@cache
def iq2_magnitudes() -> mx.array:
    """Eight magnitudes, a byte each, of every table entry of IQ2_XXS: uint32 [256, 2], lower byte first.

    Kernels bind it whatever the type and copy it to threadgroup memory; other types do not look at it.
    """
    return mx.array(iq2_grid().reshape(256, 8).view("<u4"))
