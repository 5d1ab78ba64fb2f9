"""The address arithmetic of kernels that no test can give arrays large enough."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.kernel import Kernel, Maker

PROBE = Kernel(
    name="offset_probe",
    body=Path(__file__).parent / "offset_probe.metal",
    inputs=("place",),
    outputs=("words",),
    functions=("row_offset.metal",),
)


def check_row_offset(maker: Maker) -> None:
    """Beyond 2^32 numbers, and not a power of two."""
    row, columns = 70_001, 262_143
    launch = PROBE.specialise(maker)
    words = launch([mx.array([row, columns], mx.uint32)], [(2,)], [mx.uint32], (1, 1, 1), (1, 1, 1))[0]
    low, high = (int(word) for word in np.array(words))
    assert high << 32 | low == row * columns
