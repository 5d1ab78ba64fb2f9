"""The block types that kernels can read routed experts from.

Must not know: experts, layers, files.
"""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from shared.gguf.types import TensorType, block_bytes
from shared.quant.iq2 import iq2_grid

_NAMES = {TensorType.IQ2_XXS: "iq2_xxs", TensorType.Q2_K: "q2_k", TensorType.Q4_K: "q4_k"}
KERNEL_TYPES = tuple(_NAMES)
# Headers with which a kernel multiplies parts of blocks or expands pieces of them. The names in them are the
# same for all types: one kernel text serves each.
PART_HEADERS = {type: (f"{name}.metal", f"{name}_part.metal") for type, name in _NAMES.items()}
PIECE_HEADERS = {type: (f"{name}.metal", f"{name}_piece.metal") for type, name in _NAMES.items()}
BLOCK_WEIGHTS = 256
# Where in a block its binary16 numbers stand.
SCALES_AT = {TensorType.IQ2_XXS: (0,), TensorType.Q2_K: (80, 82), TensorType.Q4_K: (0, 2)}


@cache
def iq2_magnitudes() -> mx.array:
    """Eight magnitudes, a byte each, of every table entry of IQ2_XXS: uint32 [256, 2], lower byte first.

    Kernels bind it whatever the type and copy it to threadgroup memory; other types do not look at it.
    """
    return mx.array(iq2_grid().reshape(256, 8).view("<u4"))


def random_blocks(
    random: np.random.Generator, rows: tuple[int, ...], columns: int, type: TensorType
) -> npt.NDArray[np.uint8]:
    """Rows of random codes for trying a kernel, uint8 [*rows, row bytes]; scales are 0.001 to 0.002 of either
    sign, binary16."""
    blocks = random.integers(0, 256, (*rows, columns // BLOCK_WEIGHTS, block_bytes(type)), np.uint8)
    for at in SCALES_AT[type]:
        scales = random.uniform(0.001, 0.002, blocks.shape[:-1]) * random.choice([-1, 1], blocks.shape[:-1])
        blocks[..., at : at + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(*rows, -1)
