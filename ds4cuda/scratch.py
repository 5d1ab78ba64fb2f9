"""The memory that a step works in: one allocation of fixed addresses, shared by all sessions of an engine.

Must not know: what is computed in it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ds4cuda.device import Device
from ds4cuda.kernels.attend import MOST_SPLITS
from ds4cuda.kernels.group_experts import most_groups
from ds4cuda.kernels.hyper_mix import slices
from ds4cuda.kernels.quantise import DENSE_BLOCK, EXPERT_BLOCK, SUM_OF
from ds4cuda.operations import compressor_columns
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape

# Scores of index rows that are held at a time; a step of many tokens goes through them in blocks.
MOST_SCORES = 16 << 20
_ALIGNMENT = 256


def buffer_sizes(shape: ModelShape, tokens: int) -> dict[str, tuple[npt.DTypeLike, int]]:
    """Each buffer's dtype and elements, for steps of up to `tokens` tokens."""
    width, mixes = shape.embedding_width, shape.mix_width
    ratios = set(shape.compress_ratios)
    pairs = tokens * shape.experts_used
    heads = shape.head_count * shape.head_dim
    attending = max(tokens, MOST_SPLITS)
    floats = {
        "rotations": 2 * tokens * shape.rotary_dim,
        "streams": tokens * shape.streams * width,
        "output": tokens * width,
        "joint": tokens * shape.streams * (1 + shape.streams),
        "mix": tokens * slices(width) * (mixes + 1),
        "x": tokens * width,
        "low": tokens * (shape.query_rank + shape.head_dim),
        "projected": tokens * max(1, *(compressor_columns(shape, ratio) for ratio in ratios)),
        "frontier": tokens * max(1, *(sum(frontier_widths(shape, ratio)) for ratio in ratios)),
        "latent": tokens * shape.query_rank,
        "queries": tokens * heads,
        "index_queries": tokens * shape.index_heads * shape.index_dim,
        "scores": MOST_SCORES,
        "partial": attending * heads,
        "maxima": 2 * attending * shape.head_count,
        "group_outputs": tokens * shape.output_groups * shape.output_rank,
        "shared_hidden": tokens * shape.expert_width,
        "router_logits": tokens * shape.expert_count,
        "shares": pairs,
        "hidden": pairs * shape.expert_width,
        "expert_outputs": pairs * width,
        "logits": shape.vocabulary_size,
    }
    dense = max(width, heads, shape.query_rank, shape.output_groups * shape.output_rank, shape.expert_width)
    expert = max(tokens * width, pairs * shape.expert_width)
    floats |= {"dense_scales": tokens * dense // DENSE_BLOCK, "expert_scales": expert // EXPERT_BLOCK}
    integers = {"position": 1, "tokens": tokens, "chosen_rows": tokens * shape.index_top_k, "experts": pairs}
    integers |= {"pair_order": pairs, "pair_groups": 3 * most_groups(pairs, shape.expert_count)}
    integers["pair_counts"] = shape.expert_count
    return {
        **{name: (np.float32, count) for name, count in floats.items()},
        **{name: (np.int32, count) for name, count in integers.items()},
        "dense_codes": (np.int8, tokens * dense),
        "expert_codes": (np.int8, expert),
        "expert_sums": (np.int16, expert // SUM_OF),
    }


def scratch_bytes(shape: ModelShape, tokens: int) -> int:
    """Device memory of a `Scratch`."""
    return sum(_padded(_bytes(*buffer)) for buffer in buffer_sizes(shape, tokens).values())


class Scratch:
    """`scratch(name, *shape)` is the beginning of a buffer, as an array of that shape."""

    def __init__(self, device: Device, shape: ModelShape, tokens: int) -> None:
        self.tokens = tokens
        self._memory = device.empty((scratch_bytes(shape, tokens),), np.uint8)
        self._buffers: dict[str, Any] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Any] = {}
        start = 0
        for name, (dtype, count) in buffer_sizes(shape, tokens).items():
            self._buffers[name] = self._memory[start : start + _bytes(dtype, count)].view(dtype)
            start += _padded(_bytes(dtype, count))

    def __call__(self, name: str, *shape: int) -> Any:
        if shape[0] == 1:  # steps of one token take the same arrays every time
            found = self._views.get((name, shape))
            if found is None:
                found = self._views[name, shape] = self._view(name, shape)
            return found
        return self._view(name, shape)

    def _view(self, name: str, shape: tuple[int, ...]) -> Any:
        buffer, count = self._buffers[name], math.prod(shape)
        if count > buffer.size:
            raise ValueError(f"scratch memory holds {buffer.size} numbers of {name}, not {count}")
        return buffer[:count].reshape(shape)


def _bytes(dtype: npt.DTypeLike, count: int) -> int:
    return np.dtype(dtype).itemsize * count


def _padded(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
