"""The expert half of a layer in PyTorch. Spec: model §4.8."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from shared.model.shape import ModelShape

Weights = Callable[[str], Tensor]
_LEAST_WEIGHT_SUM = 2.0**-14


def experts(
    hidden: Tensor, chosen_by_hash: Tensor | None, weights: Weights, bias: Tensor | None, shape: ModelShape
) -> tuple[Tensor, Tensor]:
    """Output [n, D] of the routed experts and the shared one for inputs [n, D], and the expert ids [n, K].

    `chosen_by_hash` [n, K] replaces the router's choice in the first layers; `bias` only shifts the choice.
    """
    affinity = torch.sqrt(F.softplus(hidden @ weights("ffn_gate_inp.weight").T))
    if chosen_by_hash is None:
        ranked = affinity.detach() if bias is None else affinity.detach() + bias
        chosen = torch.topk(ranked, shape.experts_used, -1).indices
    else:
        chosen = chosen_by_hash
    share = affinity.gather(1, chosen)
    share = share / share.sum(1, keepdim=True).clamp_min(_LEAST_WEIGHT_SUM) * shape.expert_weight_scale
    order = torch.argsort(chosen.flatten(), stable=True)
    token = order // shape.experts_used
    counts = torch.bincount(chosen.flatten(), minlength=shape.expert_count).tolist()
    inputs = hidden[token].split(counts)
    shares = share.flatten()[order][:, None].split(counts)
    # Unbound, not indexed: the gradient of an index is a whole stack of zeros.
    gate, up, down = (weights(f"ffn_{part}_exps.weight").unbind() for part in ("gate", "up", "down"))
    outputs = [
        (swiglu(own @ gate[expert].T, own @ up[expert].T, shape.swiglu_clamp) * weight) @ down[expert].T
        for expert, (own, weight) in enumerate(zip(inputs, shares, strict=True))
        if len(own)
    ]
    shared = swiglu(
        hidden @ weights("ffn_gate_shexp.weight").T,
        hidden @ weights("ffn_up_shexp.weight").T,
        shape.swiglu_clamp,
    )
    result = shared @ weights("ffn_down_shexp.weight").T
    return result.index_add(0, token, torch.cat(outputs)), chosen


def swiglu(gate: Tensor, up: Tensor, clamp: float) -> Tensor:
    """silu(gate) * up, the gate bounded above only and `up` on both sides."""
    return F.silu(gate.clamp(max=clamp)) * up.clamp(-clamp, clamp)
