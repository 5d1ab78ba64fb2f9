"""Gives the last layer's compressed rows what the layer before it has learnt about its window.

Left alone, a model this small learns to find a fact in the window and never beyond: nothing leads from
random compressed rows to useful ones. So, once the window is mastered, the last layer becomes a copy of the
attention before it, its compressor pools what the window's rows hold, and its gate prefers the tokens of
numbers, which are told apart by Fisher's linear discriminant. A tenth of the far facts is found at once;
training does the rest.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import torch
from torch import Tensor

from bench.embedded_model.attention import Manner
from bench.embedded_model.batches import training_batch
from bench.embedded_model.conversation import Mixture
from bench.embedded_model.model import Model
from shared.model.shape import ModelShape
from shared.text.tokenizer import Tokenizer

_COPIED = ("attn_q", "attn_kv", "attn_output", "attn_sinks", "attn_norm", "hc_attn")
_SHARPNESS = 6.0  # how far a number's score stands above that of another token
_LENGTH, _TOKENS = 512, 4096  # of the sample that the discriminant is taken of
_RIDGE = 1e-2


@torch.no_grad()
def graft(weights: Mapping[str, Tensor], shape: ModelShape, tokenizer: Tokenizer) -> set[str]:
    """Changes `weights` in place; returns the names of the tensors that are new."""
    layer = shape.layer_count - 1
    assert shape.compress_ratios[layer] == 4
    before, here = f"blk.{layer - 1}.", f"blk.{layer}."
    changed = set()
    for name in weights:
        if name.startswith(before) and name.removeprefix(before).startswith(_COPIED):
            copy = name.replace(before, here)
            weights[copy].copy_(weights[name])
            changed.add(copy)
    compressor = here + "attn_compressor_"
    rows = weights[here + "attn_kv.weight"]
    weights[compressor + "kv.weight"].copy_(torch.cat((rows, rows)))
    weights[compressor + "norm.weight"].copy_(weights[here + "attn_kv_a_norm.weight"])
    weights[compressor + "ape.weight"].zero_()
    direction = _towards_numbers(weights, shape, tokenizer)
    weights[compressor + "gate.weight"].copy_(_SHARPNESS * direction.expand_as(rows.repeat(2, 1)))
    return changed | {f"{compressor}{part}.weight" for part in ("kv", "norm", "ape", "gate")}


def _towards_numbers(weights: Mapping[str, Tensor], shape: ModelShape, tokenizer: Tokenizer) -> Tensor:
    """The direction [D] of the last attention's inputs along which numbers stand 1 above other tokens."""
    mixture = Mixture(engine=0, numbers=0, recall=1, tools=0)
    batch = training_batch(random.Random("graft"), tokenizer, mixture, _LENGTH, _TOKENS)
    seen: list[Tensor] = []
    Model(weights, shape).streams(batch.ids, Manner(), inputs=seen)
    inputs = seen[-1].flatten(0, 1)
    numbers = [
        token
        for token in range(shape.vocabulary_size)
        if tokenizer.token_bytes(token).strip().isdigit() and len(tokenizer.token_bytes(token).strip()) < 3
    ]
    marked = torch.isin(batch.ids.flatten(), torch.tensor(numbers))
    those, others = inputs[marked], inputs[~marked]
    spread = torch.cov(those.T) + torch.cov(others.T)
    spread += _RIDGE * spread.diagonal().mean() * torch.eye(len(spread))
    direction = torch.linalg.solve(spread, those.mean(0) - others.mean(0))
    return direction / ((those.mean(0) - others.mean(0)) @ direction)
