"""Matrices that activations are multiplied by, in the storage that suits the device.

`FloatMatrix` holds plain numbers, `HalfMatrix` float16 weights as files have them, `PackedMatrix` Q8_0
weights in MLX's own 8-bit layout (lossless). All are called with float32 [..., inputs] and return float32
[..., outputs]. Must not know: which matrix of the model this is, files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.product import multiply

_Q8_BLOCK = 32
_Q8_BYTES = 34


@dataclass(frozen=True, slots=True)
class Dimensions:
    """All that a kernel has to know of a matrix beforehand. `inputs` and `outputs` are those of one group;
    a matrix of several groups multiplies each part of its input by the part's own matrix."""

    storage: Literal["f32", "f16", "q8_0"]
    inputs: int
    outputs: int
    groups: int = 1


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """`weight` [..., inputs, outputs], float32 or float16."""

    weight: mx.array

    @property
    def dimensions(self) -> Dimensions:
        *groups, inputs, outputs = self.weight.shape
        return Dimensions("f32", inputs, outputs, *groups)

    def __call__(self, x: mx.array) -> mx.array:
        return multiply(x, self.weight.astype(mx.float32), x.shape[-2])


@dataclass(frozen=True, slots=True)
class HalfMatrix:
    """`weight` float16 [..., outputs, inputs]."""

    weight: mx.array

    @property
    def dimensions(self) -> Dimensions:
        *groups, outputs, inputs = self.weight.shape
        return Dimensions("f16", inputs, outputs, *groups)

    @property
    def operands(self) -> tuple[mx.array, mx.array]:
        """What a kernel binds for weights and scales; there being none, the weights again."""
        return self.weight, self.weight

    def __call__(self, x: mx.array) -> mx.array:
        return multiply(x, self.weight.astype(mx.float32).swapaxes(-1, -2), x.shape[-2])


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """`packed` uint32 [..., outputs, inputs / 4]; `scales`, `biases` float32 [..., outputs, inputs / 32]."""

    packed: mx.array
    scales: mx.array
    biases: mx.array

    @property
    def dimensions(self) -> Dimensions:
        *groups, outputs, words = self.packed.shape
        return Dimensions("q8_0", 4 * words, outputs, *groups)

    @property
    def operands(self) -> tuple[mx.array, mx.array]:
        """What a kernel binds for weights and scales. The biases it knows: -128 scales."""
        return self.packed, self.scales

    def __call__(self, x: mx.array) -> mx.array:
        return mx.quantized_matmul(
            x, self.packed, self.scales, self.biases, transpose=True, group_size=_Q8_BLOCK, bits=8
        )


Matrix = FloatMatrix | HalfMatrix | PackedMatrix


def pack_q8_0(data: npt.NDArray[np.uint8], outputs: int) -> PackedMatrix:
    """Repack Q8_0 bytes of a matrix of `outputs` rows. The weights stay bit-equal: q + 128 is stored, and
    (q + 128) d - 128 d loses nothing in float32. Spec: model §3."""
    blocks = data.reshape(outputs, -1, _Q8_BYTES)
    scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)[..., 0]
    codes = np.ascontiguousarray(blocks[..., 2:] ^ 0x80).reshape(outputs, -1).view("<u4")
    return PackedMatrix(mx.array(codes), mx.array(scales), mx.array(scales * np.float32(-128)))


def stack_outputs(parts: list[Matrix]) -> Matrix:
    """One matrix whose outputs are those of `parts` one after the other.

    Raises ValueError where the parts are not all of one storage.
    """
    packed = [part for part in parts if isinstance(part, PackedMatrix)]
    halves = [part.weight for part in parts if isinstance(part, HalfMatrix)]
    floats = [part.weight for part in parts if isinstance(part, FloatMatrix)]
    if len(parts) not in (len(packed), len(halves), len(floats)):
        raise ValueError("matrices of different storages cannot be stacked")
    if packed:
        fields = ("packed", "scales", "biases")
        joined = [mx.concatenate([getattr(part, field) for part in packed], axis=-2) for field in fields]
        return PackedMatrix(*joined)
    if halves:
        return HalfMatrix(mx.concatenate(halves, axis=-2))
    return FloatMatrix(mx.concatenate(floats, axis=-1))


def multiply_groups(x: mx.array, matrix: Matrix, groups: int) -> mx.array:
    """Each group's part of x, float32 [n, groups * inputs], by the group's own matrix: [n, groups * outputs].
    `matrix` is called with [groups, n, inputs]; one group is a plain product."""
    if groups == 1:
        return matrix(x)
    count = x.shape[0]
    products = matrix(x.reshape(count, groups, -1).swapaxes(0, 1))
    return products.swapaxes(0, 1).reshape(count, -1)
