"""Hyper-connections in PyTorch: four residual streams, mixed before and after each half of a layer.

In plain PyTorch, or in compiled C where that is possible (`streams`): the combine matrices go through 20
Sinkhorn rounds, hundreds of tiny operations. Spec: model §4.4.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.embedded_model import streams as compiled


class Sinkhorn(torch.autograd.Function):
    """Matrices [rows, columns, n] made doubly stochastic by alternate division, columns first and last."""

    @staticmethod
    def forward(context: Any, matrices: Tensor, rounds: int, epsilon: float) -> Tensor:
        steps: list[tuple[int, Tensor, Tensor]] = []
        current = matrices
        for number in range(2 * rounds - 1):
            axis = number % 2
            total = current.sum(axis, keepdim=True).add_(epsilon)
            current = current / total
            steps.append((axis, current, total))
        context.steps = steps
        return current

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        for axis, quotient, total in reversed(context.steps):
            shared = (gradient * quotient).sum(axis, keepdim=True)
            gradient = (gradient - shared).div_(total)
        return gradient, None, None


def before(
    streams: Tensor,
    mix: Tensor,
    scale: Tensor,
    base: Tensor,
    *,
    rounds: int,
    epsilon: float,
    rms_epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of streams [n, S, D]: input [n, D] of half a layer, post weights [n, S], combine matrices [n, S, S]."""
    count, width = streams.shape[:2]
    if compiled.library() is not None:
        raw = streams.reshape(count, -1) @ mix.T
        found: tuple[Tensor, Tensor, Tensor] = compiled.Before.apply(
            streams.contiguous(), raw, scale, base, rounds, epsilon, rms_epsilon
        )
        return found
    mixed = mixes(streams, mix, rms_epsilon)
    pre = torch.sigmoid(mixed[:, :width] * scale[0] + base[:width]) + epsilon
    post = 2 * torch.sigmoid(mixed[:, width : 2 * width] * scale[1] + base[width : 2 * width])
    raw = mixed[:, 2 * width :] * scale[2] + base[2 * width :]
    rows = torch.softmax(raw.view(count, width, width), -1) + epsilon
    combine = Sinkhorn.apply(rows.permute(1, 2, 0).contiguous(), rounds, epsilon)
    return torch.bmm(pre[:, None], streams)[:, 0], post, combine.permute(2, 0, 1)


def after(streams: Tensor, output: Tensor, post: Tensor, combine: Tensor) -> Tensor:
    """Streams [n, S, D] after half a layer."""
    if compiled.library() is not None:
        result: Tensor = compiled.After.apply(streams.contiguous(), output.contiguous(), post, combine)
        return result
    return torch.baddbmm(post[:, :, None] * output[:, None], combine.transpose(1, 2), streams)


def mixes(streams: Tensor, mix: Tensor, rms_epsilon: float) -> Tensor:
    """The mix values of all streams, normalised together; the division comes after the product."""
    flat = streams.reshape(len(streams), -1)
    scale = torch.rsqrt(flat.square().mean(-1, keepdim=True) + rms_epsilon)
    return (flat @ mix.T) * scale
