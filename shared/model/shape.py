"""The shape of a model: every number that the forward pass and the tensor table depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Hyperparameters of one model (spec: model §1.1). Sizes are element counts."""

    variant: str  # "flash", "flash-4-expert", "pro" or "test"
    model_id: int  # 0 Flash-like, 1 PRO-like
    layer_count: int
    embedding_width: int
    vocabulary_size: int
    head_count: int
    head_dim: int
    rotary_dim: int
    query_rank: int
    output_rank: int
    output_groups: int
    expert_count: int
    experts_used: int
    shared_experts: int
    expert_width: int
    hash_layers: int
    window: int
    index_heads: int
    index_dim: int
    index_top_k: int
    streams: int  # hyper-connection streams
    sinkhorn_rounds: int
    rms_epsilon: float
    hyper_connection_epsilon: float
    expert_weight_scale: float
    swiglu_clamp: float
    rope_base: float
    compress_rope_base: float
    rope_scale: float
    yarn_beta_fast: float
    yarn_beta_slow: float
    rope_original_context: int
    compress_ratios: tuple[int, ...]  # one of 0, 4, 128 per layer

    @property
    def mix_width(self) -> int:
        """Outputs of a hyper-connection mix: pre, post and combine weights."""
        return 2 * self.streams + self.streams**2
