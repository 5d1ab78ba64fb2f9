"""Bytes that one step must read at least: what a step's time is held against.

Arithmetic on a shape and on weights. Must not know: times.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from ds4cuda.weights import Weights
from shared.model.shape import ModelShape


def token_bytes(weights: Weights, shape: ModelShape, context: int) -> int:
    """Of the decode step at position `context`: every weight once, of the experts those that are used, of the
    embedding one row; and the rows of the caches that are attended to or scored, binary16 and float32."""
    share = shape.experts_used / shape.expert_count
    experts = sum(_nbytes(layer.experts) for layer in weights.layers)
    embedding = int(weights.embedding.nbytes)
    held = _nbytes(weights) - experts - embedding
    row = embedding // shape.vocabulary_size
    return round(held + experts * share + row + _cache_bytes(shape, context))


def _cache_bytes(shape: ModelShape, context: int) -> int:
    total = 0
    for ratio in shape.compress_ratios:
        rows, scored = min(context, shape.window), 0
        if ratio:
            compressed = context // ratio
            if ratio == 4 and compressed > shape.index_top_k:
                scored, compressed = compressed, shape.index_top_k
            rows += compressed
        total += 2 * rows * shape.head_dim + 4 * scored * shape.index_dim
    return total


def _nbytes(part: object) -> int:
    """Of all arrays below a dataclass, each once."""
    return sum(_arrays(part).values())


def _arrays(part: object) -> dict[int, int]:
    if hasattr(part, "nbytes") and hasattr(part, "dtype"):
        return {id(part): int(part.nbytes)}
    items: Any = part if isinstance(part, tuple) else ()
    if is_dataclass(part):
        items = [getattr(part, field.name) for field in fields(part)]
    found: dict[int, int] = {}
    for item in items:
        found |= _arrays(item)
    return found
