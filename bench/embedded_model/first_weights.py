"""The weights before training: random, but for three choices that save most of the early training.

Every embedding shares a constant in its first channels. Through it some heads of the first two layers start
as positional ones: they look at the token one, two or three places back, whatever it is. And the streams
start as a plain residual path with slightly different weights each.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shared.model.rope import rotary_frequencies
from shared.model.shape import ModelShape
from shared.model.tensors import tensor_table

CONSTANT_CHANNELS = 8
# Weights that start as one number, by the end of their name; the spread of random ones, where it is not that
# of a matrix that keeps the size of its input; and the matrices that write to the streams or the logits.
_CONSTANT = {
    "norm.weight": 1.0,
    "exp_probs_b.bias": 0.0,
    "attn_sinks.weight": 0.0,
    "ape.weight": 0.0,
    "_scale.weight": 0.5,
}
_SPREAD = {"token_embd.weight": 0.7}
_MIX_SPREAD = 0.02
_HALVED = ("attn_output_b.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight", "output.weight")
_FAST_PAIRS = 4  # rotary pairs that tell neighbours apart
# Offsets of the positional heads, by layer: head number -> tokens back.
_POSITIONAL = {0: {0: 1, 1: 2, 2: 3}, 1: {0: 1, 1: 2}}


def first_weights(shape: ModelShape, seed: int) -> dict[str, Tensor]:
    """All tensors of the shape by name, in NumPy order. Expert tables are integers, the rest float32."""
    torch.manual_seed(seed)
    weights = {}
    for spec in tensor_table(shape):
        weights[spec.name] = _first(spec.name, spec.dims[::-1], shape)
    weights["token_embd.weight"][:, :CONSTANT_CHANNELS] = 1.0
    for layer, heads in _POSITIONAL.items():
        _make_positional(weights, layer, heads, shape)
    return weights


def _first(name: str, dims: tuple[int, ...], shape: ModelShape) -> Tensor:
    last = name.split(".", 2)[-1] if name.startswith("blk.") else name
    if last == "ffn_gate_tid2eid.weight":
        return _balanced_table(dims, shape)
    if last.endswith("_base.weight"):
        return _bases(dims[0], shape.streams)
    for end, value in _CONSTANT.items():
        if last.endswith(end):
            return torch.full(dims, value)
    spread = _SPREAD.get(last, 1.0 / math.sqrt(dims[-1]))
    if last.endswith("_fn.weight"):
        spread = _MIX_SPREAD
    if last in _HALVED:
        spread *= 0.5
    return torch.randn(dims) * spread


def _bases(count: int, streams: int) -> Tensor:
    """Input: about the mean of the streams. Output: to every stream. Combination: near the identity."""
    base = torch.randn(count) * 0.3
    base[:streams] += math.log(1 / (streams - 1))
    if count > streams:
        base[2 * streams :] = (torch.eye(streams) * 4.0).flatten()
    return base


def _balanced_table(dims: tuple[int, ...], shape: ModelShape) -> Tensor:
    """Different experts for each token, every expert as often as the others."""
    count, used = dims
    rounds = -(-count // shape.expert_count)
    first = torch.cat([torch.randperm(shape.expert_count) for _ in range(rounds)])[:count]
    steps = torch.stack([torch.randperm(shape.expert_count - 1)[: used - 1] + 1 for _ in range(count)])
    others = (first[:, None] + steps) % shape.expert_count
    return torch.cat((first[:, None], others), 1).to(torch.int64)


def _make_positional(
    weights: dict[str, Tensor], layer: int, offsets: dict[int, int], shape: ModelShape
) -> None:
    prefix, ratio = f"blk.{layer}.", shape.compress_ratios[layer]
    start = shape.head_dim - shape.rotary_dim
    rows = weights[f"{prefix}attn_kv.weight"]
    fast = slice(start, start + 2 * _FAST_PAIRS)
    rows[start:] *= 0.3
    rows[fast] = 0.0
    rows[start : start + 2 * _FAST_PAIRS : 2, :CONSTANT_CHANNELS] = 2.5 / CONSTANT_CHANNELS
    weights[f"{prefix}attn_kv_a_norm.weight"][fast] = 1.5
    down, up = weights[f"{prefix}attn_q_a.weight"], weights[f"{prefix}attn_q_b.weight"]
    down[0] = 0.0
    down[0, :CONSTANT_CHANNELS] = 3.0 / CONSTANT_CHANNELS
    frequencies = rotary_frequencies(shape, ratio)
    for head, back in offsets.items():
        first = head * shape.head_dim
        up[first : first + shape.head_dim] *= 0.1
        for pair in range(_FAST_PAIRS):
            angle = -back * float(frequencies[pair])
            up[first + start + 2 * pair, 0] = 2.0 * math.cos(angle)
            up[first + start + 2 * pair + 1, 0] = 2.0 * math.sin(angle)
