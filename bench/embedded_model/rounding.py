"""The rounding of cached rows in PyTorch, with gradients that pass straight through. Spec: model §4.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def straight_through(values: Tensor, rounded: Tensor) -> Tensor:
    """`rounded` going forward, the identity going back."""
    return values + (rounded - values).detach()


def round_row(rows: Tensor, rotary: int) -> Tensor:
    """A cached row: E4M3 in blocks of 64 but for the rotary channels, then binary16 for all."""
    plain, turned = rows[..., :-rotary], rows[..., -rotary:]
    small = round_blocks(plain, 64, 448.0, 1e-4, 3, -6)
    return straight_through(rows, torch.cat((small, turned), -1).half().float())


def round_index(rows: Tensor) -> Tensor:
    """An indexer row: Hadamard transform, then E2M1 in blocks of 32."""
    turned = hadamard(rows)
    return straight_through(turned, round_blocks(turned, 32, 6.0, 6.0 * 2.0**-126, 1, 0))


def hadamard(rows: Tensor) -> Tensor:
    """Orthonormal Walsh-Hadamard transform of the last axis, natural order."""
    width = rows.shape[-1]
    values, half = rows, 1
    while half < width:
        pairs = values.reshape(*rows.shape[:-1], width // (2 * half), 2, half)
        values = torch.cat((pairs[..., :1, :] + pairs[..., 1:, :], pairs[..., :1, :] - pairs[..., 1:, :]), -2)
        half *= 2
    return values.reshape(rows.shape) * (1.0 / math.sqrt(width))


@torch.no_grad()
def round_blocks(
    rows: Tensor, block: int, largest: float, floor: float, mantissa_bits: int, least_exponent: int
) -> Tensor:
    """Rows [..., n * block] in small floats up to `largest`, with a power-of-two scale for each block."""
    blocks = rows.reshape(*rows.shape[:-1], -1, block)
    amax = blocks.abs().amax(-1, keepdim=True).clamp_min(floor)
    mantissa, exponent = torch.frexp(amax / largest)
    exponent = exponent - (mantissa == 0.5).int()
    scaled = torch.ldexp(blocks, -exponent).clamp(-largest, largest)
    step = (torch.frexp(scaled)[1] - 1).clamp_min(least_exponent) - mantissa_bits
    rounded = torch.ldexp(torch.round(torch.ldexp(scaled, -step)), step)
    return torch.ldexp(rounded, exponent).reshape(rows.shape)
