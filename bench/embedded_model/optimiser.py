"""The optimiser: orthogonalised momentum (Muon) for the plain matrices, Adam for everything else.

A step on few tokens goes further this way than with Adam alone. The expert stacks stay with Adam: taking
their 120 matrices through the iteration would cost a fifth of a step on a CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

_ORTHOGONALISED = re.compile(
    r"blk\.\d+\.(attn_(q_a|q_b|kv|output_a|output_b)|(attn|indexer)_compressor_(kv|gate)|indexer\.attn_q_b"
    r"|ffn_(gate|up|down)_shexp)\.weight"
)
_ITERATIONS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration, as published with Muon
_MOMENTUM = 0.95
_BETAS = (0.9, 0.98)
_EPSILON = 1e-9
# Learning rates relative to Adam's: what acts on every token moves slowly.
_SLOW = {"hc_": 0.3, "ape.": 1.0, "sinks": 1.0, "norm.": 0.5}


def orthogonalise(matrix: Tensor) -> Tensor:
    """The nearest matrix with all singular values about 1, by Newton-Schulz iteration."""
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    current = matrix.T if tall else matrix
    current = current / (current.norm() + 1e-7)
    for _ in range(_ITERATIONS):
        square = current @ current.T
        current = a * current + (b * square + c * square @ square) @ current
    return current.T if tall else current


class Optimiser:
    """Owns the moments. Weights are changed in place by `step`."""

    def __init__(
        self, weights: Mapping[str, Tensor], *, muon_rate: float, adam_rate: float, decay: float
    ) -> None:
        self._weights = {name: tensor for name, tensor in weights.items() if tensor.requires_grad}
        self._muon_rate, self._adam_rate, self._decay = muon_rate, adam_rate, decay
        self._momentum = {
            name: torch.zeros_like(tensor)
            for name, tensor in self._weights.items()
            if _ORTHOGONALISED.fullmatch(name)
        }
        self._rates, groups = [], []
        for name, tensor in self._weights.items():
            if name not in self._momentum:
                self._rates.append(adam_rate * next((f for part, f in _SLOW.items() if part in name), 1.0))
                groups.append({"params": [tensor], "weight_decay": decay if tensor.dim() > 1 else 0.0})
        self._adam = torch.optim.AdamW(groups, lr=adam_rate, betas=_BETAS, eps=_EPSILON, fused=True)

    @torch.no_grad()
    def step(self, rate: float, clip: float = 1.0) -> float:
        """One step at `rate` times the learning rates; returns the gradient's norm before clipping."""
        held = [tensor.grad for tensor in self._weights.values() if tensor.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(held))
        if norm > clip:
            torch._foreach_mul_(held, clip / norm)
        for name, momentum in self._momentum.items():
            tensor = self._weights[name]
            if tensor.grad is not None:
                self._muon(momentum, tensor, tensor.grad, rate)
        for group, own in zip(self._adam.param_groups, self._rates, strict=True):
            group["lr"] = own * rate
        self._adam.step()
        for tensor in self._weights.values():
            tensor.grad = None
        return norm

    def _muon(self, momentum: Tensor, tensor: Tensor, gradient: Tensor, rate: float) -> None:
        momentum.mul_(_MOMENTUM).add_(gradient)
        update = orthogonalise(gradient + _MOMENTUM * momentum)
        factor = max(1.0, tensor.shape[0] / tensor.shape[1]) ** 0.5
        tensor.mul_(1 - rate * self._muon_rate * self._decay)
        tensor.sub_(update, alpha=rate * self._muon_rate * factor)

    def forget(self, names: Iterable[str]) -> None:
        """Clears the moments of weights that were replaced."""
        for name in names:
            if name in self._momentum:
                self._momentum[name].zero_()
            else:
                self._adam.state.pop(self._weights[name], None)

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs to go on as if nothing had happened."""
        return {"momentum": self._momentum, "adam": self._adam.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` gave."""
        for name, momentum in self._momentum.items():
            momentum.copy_(state["momentum"][name])
        self._adam.load_state_dict(state["adam"])
