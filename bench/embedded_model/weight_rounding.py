"""Weights as the shipped checkpoint holds them, with gradients that pass straight through.

Near the end the model is trained on what a file can say: experts in FP4 with a power-of-two scale for 32
inputs, dense matrices in FP8 with one for 128 x 128 numbers. Spec: model §2.5.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.embedded_model.rounding import round_blocks, straight_through
from shared.gguf.types import TensorType
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, tensor_table

_SQUARE = 128
_LEAST = 2.0**-100  # of a block's largest number, before its scale is taken


def as_shipped(weights: Mapping[str, Tensor], shape: ModelShape) -> dict[str, Tensor]:
    """`weights` with every matrix rounded that a checkpoint does not hold in 16 or 32 bits."""
    rounded = dict(weights)
    for spec in tensor_table(shape):
        values = weights[spec.name]
        if spec.types == EXPERT_TYPES:
            rounded[spec.name] = straight_through(values, round_blocks(values, 32, 6.0, _LEAST, 1, 0))
        elif spec.types[0] is TensorType.Q8_0 and spec.name != "output.weight":
            rounded[spec.name] = straight_through(values, _round_squares(values))
    return rounded


@torch.no_grad()
def _round_squares(matrix: Tensor) -> Tensor:
    """A matrix in E4M3 with a scale for each square; its edges may be cut through a square."""
    rows, columns = matrix.shape
    padded = F.pad(matrix, (0, -columns % _SQUARE, 0, -rows % _SQUARE))
    down, across = padded.shape[0] // _SQUARE, padded.shape[1] // _SQUARE
    squares = padded.view(down, _SQUARE, across, _SQUARE).transpose(1, 2).reshape(down, across, -1)
    squares = round_blocks(squares, _SQUARE * _SQUARE, 448.0, _LEAST, 3, -6)
    whole = squares.view(down, across, _SQUARE, _SQUARE).transpose(1, 2).reshape(padded.shape)
    return whole[:rows, :columns]
