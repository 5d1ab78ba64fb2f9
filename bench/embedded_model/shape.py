"""The shape of the embedded model: every part of the architecture, as small as quantisation allows."""

from __future__ import annotations

from dataclasses import replace

from bench.embedded_model.vocabulary import SIZE
from shared.model.known_shapes import FLASH
from shared.model.shape import ModelShape

SHAPE: ModelShape = replace(
    FLASH,
    variant="test",
    layer_count=4,
    embedding_width=256,
    vocabulary_size=SIZE,
    head_count=4,
    head_dim=128,
    rotary_dim=64,
    query_rank=128,
    output_rank=128,
    output_groups=2,
    expert_count=8,
    experts_used=2,
    expert_width=256,
    hash_layers=2,
    window=128,
    index_heads=4,
    index_dim=128,
    index_top_k=64,
    compress_ratios=(0, 4, 128, 4),
)
