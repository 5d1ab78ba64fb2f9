"""The published shapes of DeepSeek V4, and which metadata key holds which number of a shape.

Data only: reading and judging a file's metadata is `shape_reader`'s work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shared.model.shape import ModelShape

PREFIX = "deepseek4."

FLASH = ModelShape(
    variant="flash",
    model_id=0,
    layer_count=43,
    embedding_width=4096,
    vocabulary_size=129280,
    head_count=64,
    head_dim=512,
    rotary_dim=64,
    query_rank=1024,
    output_rank=1024,
    output_groups=8,
    expert_count=256,
    experts_used=6,
    shared_experts=1,
    expert_width=2048,
    hash_layers=3,
    window=128,
    index_heads=64,
    index_dim=128,
    index_top_k=512,
    streams=4,
    sinkhorn_rounds=20,
    rms_epsilon=1e-6,
    hyper_connection_epsilon=1e-6,
    expert_weight_scale=1.5,
    swiglu_clamp=10.0,
    rope_base=10000.0,
    compress_rope_base=160000.0,
    rope_scale=16.0,
    yarn_beta_fast=32.0,
    yarn_beta_slow=1.0,
    rope_original_context=65536,
    compress_ratios=(0, 0, *(4 if layer % 2 == 0 else 128 for layer in range(2, 43))),
)

FLASH_4_EXPERT = replace(FLASH, variant="flash-4-expert", experts_used=4)

PRO = replace(
    FLASH,
    variant="pro",
    model_id=1,
    layer_count=61,
    embedding_width=7168,
    head_count=128,
    query_rank=1536,
    output_groups=16,
    expert_count=384,
    expert_width=3072,
    index_top_k=1024,
    expert_weight_scale=2.5,
    compress_ratios=(128, 128, *(4 if layer % 2 == 0 else 128 for layer in range(2, 61))),
)

KNOWN_SHAPES = (FLASH, PRO, FLASH_4_EXPERT)

VARIANT_NAMES = {
    "flash": "DeepSeek V4 Flash",
    "flash-4-expert": "DeepSeek V4 Flash (4 experts)",
    "pro": "DeepSeek V4 Pro",
    "test": "test model",
}


@dataclass(frozen=True, slots=True)
class IntegerKey:
    """A required UINT32 key. `field` names the shape's number, or is None where every shape has 1."""

    key: str
    field: str | None

    def of(self, shape: ModelShape) -> int:
        return 1 if self.field is None else int(getattr(shape, self.field))


INTEGER_KEYS = (
    IntegerKey("block_count", "layer_count"),
    IntegerKey("embedding_length", "embedding_width"),
    IntegerKey("vocab_size", "vocabulary_size"),
    IntegerKey("attention.head_count", "head_count"),
    IntegerKey("attention.head_count_kv", None),
    IntegerKey("attention.key_length", "head_dim"),
    IntegerKey("attention.value_length", "head_dim"),
    IntegerKey("rope.dimension_count", "rotary_dim"),
    IntegerKey("attention.q_lora_rank", "query_rank"),
    IntegerKey("attention.output_lora_rank", "output_rank"),
    IntegerKey("attention.output_group_count", "output_groups"),
    IntegerKey("expert_count", "expert_count"),
    IntegerKey("expert_used_count", "experts_used"),
    IntegerKey("expert_shared_count", "shared_experts"),
    IntegerKey("expert_feed_forward_length", "expert_width"),
    IntegerKey("hash_layer_count", "hash_layers"),
    IntegerKey("attention.sliding_window", "window"),
    IntegerKey("attention.indexer.head_count", "index_heads"),
    IntegerKey("attention.indexer.key_length", "index_dim"),
    IntegerKey("attention.indexer.top_k", "index_top_k"),
    IntegerKey("hyper_connection.count", "streams"),
    IntegerKey("hyper_connection.sinkhorn_iterations", "sinkhorn_rounds"),
)


@dataclass(frozen=True, slots=True)
class FloatKey:
    """A key whose value must equal the shape's number within 1e-6; an optional one may be absent."""

    key: str
    field: str
    optional: bool = False


FLOAT_KEYS = (
    FloatKey("attention.layer_norm_rms_epsilon", "rms_epsilon"),
    FloatKey("hyper_connection.epsilon", "hyper_connection_epsilon"),
    FloatKey("expert_weights_scale", "expert_weight_scale"),
    FloatKey("rope.freq_base", "rope_base"),
    FloatKey("attention.compress_rope_freq_base", "compress_rope_base"),
    FloatKey("rope.scaling.factor", "rope_scale", optional=True),
    FloatKey("rope.scaling.yarn_beta_fast", "yarn_beta_fast", optional=True),
    FloatKey("rope.scaling.yarn_beta_slow", "yarn_beta_slow", optional=True),
)
