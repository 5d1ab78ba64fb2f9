"""Matrices that activations are multiplied by, in the storage that suits the device.

`FloatMatrix` holds plain numbers, `PackedMatrix` Q8_0 weights in MLX's own 8-bit layout (lossless).
Both are called with float32 [..., inputs] and return float32 [..., outputs].
Must not know: which matrix of the model this is, files.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.product import multiply

_Q8_BLOCK = 32
_Q8_BYTES = 34


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """`weight` [..., inputs, outputs], float32 or float16."""

    weight: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        return multiply(x, self.weight.astype(mx.float32), x.shape[-2])


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """`packed` uint32 [..., outputs, inputs / 4]; `scales`, `biases` float32 [..., outputs, inputs / 32]."""

    packed: mx.array
    scales: mx.array
    biases: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        return mx.quantized_matmul(
            x, self.packed, self.scales, self.biases, transpose=True, group_size=_Q8_BLOCK, bits=8
        )


Matrix = FloatMatrix | PackedMatrix


def pack_q8_0(data: npt.NDArray[np.uint8], outputs: int) -> PackedMatrix:
    """Repack Q8_0 bytes of a matrix of `outputs` rows. The weights stay bit-equal: q + 128 is stored, and
    (q + 128) d - 128 d loses nothing in float32. Spec: model §3."""
    blocks = data.reshape(outputs, -1, _Q8_BYTES)
    scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)[..., 0]
    codes = np.ascontiguousarray(blocks[..., 2:] ^ 0x80).reshape(outputs, -1).view("<u4")
    return PackedMatrix(mx.array(codes), mx.array(scales), mx.array(scales * np.float32(-128)))


def stack_outputs(parts: list[Matrix]) -> Matrix:
    """One matrix whose outputs are those of `parts` one after the other (all of one storage)."""
    if all(isinstance(part, PackedMatrix) for part in parts):
        fields = ("packed", "scales", "biases")
        joined = [mx.concatenate([getattr(part, field) for part in parts], axis=-2) for field in fields]
        return PackedMatrix(*joined)
    weights = [part.weight for part in parts if isinstance(part, FloatMatrix)]
    return FloatMatrix(mx.concatenate(weights, axis=-1))
