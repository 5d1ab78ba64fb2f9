"""What a tensor of a model file is called in a checkpoint. Spec: model §2.5. Data only."""

from __future__ import annotations

_GLOBAL = {
    "token_embd.weight": "embed",
    "output_norm.weight": "norm",
    "output.weight": "head",
    "output_hc_fn.weight": "hc_head_fn",
    "output_hc_scale.weight": "hc_head_scale",
    "output_hc_base.weight": "hc_head_base",
}
_LAYER = {
    "hc_attn_fn.weight": "hc_attn_fn",
    "hc_attn_scale.weight": "hc_attn_scale",
    "hc_attn_base.weight": "hc_attn_base",
    "hc_ffn_fn.weight": "hc_ffn_fn",
    "hc_ffn_scale.weight": "hc_ffn_scale",
    "hc_ffn_base.weight": "hc_ffn_base",
    "attn_norm.weight": "attn_norm",
    "ffn_norm.weight": "ffn_norm",
    "attn_q_a.weight": "attn.wq_a",
    "attn_q_a_norm.weight": "attn.q_norm",
    "attn_q_b.weight": "attn.wq_b",
    "attn_kv.weight": "attn.wkv",
    "attn_kv_a_norm.weight": "attn.kv_norm",
    "attn_sinks.weight": "attn.attn_sink",
    "attn_output_a.weight": "attn.wo_a",
    "attn_output_b.weight": "attn.wo_b",
    "attn_compressor_ape.weight": "attn.compressor.ape",
    "attn_compressor_kv.weight": "attn.compressor.wkv",
    "attn_compressor_gate.weight": "attn.compressor.wgate",
    "attn_compressor_norm.weight": "attn.compressor.norm",
    "indexer.attn_q_b.weight": "attn.indexer.wq_b",
    "indexer.proj.weight": "attn.indexer.weights_proj",
    "indexer_compressor_ape.weight": "attn.indexer.compressor.ape",
    "indexer_compressor_kv.weight": "attn.indexer.compressor.wkv",
    "indexer_compressor_gate.weight": "attn.indexer.compressor.wgate",
    "indexer_compressor_norm.weight": "attn.indexer.compressor.norm",
    "ffn_gate_inp.weight": "ffn.gate",
    "exp_probs_b.bias": "ffn.gate.bias",
    "ffn_gate_tid2eid.weight": "ffn.gate.tid2eid",
    "ffn_gate_shexp.weight": "ffn.shared_experts.w1",
    "ffn_down_shexp.weight": "ffn.shared_experts.w2",
    "ffn_up_shexp.weight": "ffn.shared_experts.w3",
    "ffn_gate_exps.weight": "ffn.experts.{}.w1",
    "ffn_down_exps.weight": "ffn.experts.{}.w2",
    "ffn_up_exps.weight": "ffn.experts.{}.w3",
}


def source_name(name: str, expert: int = 0) -> str:
    """The name in a checkpoint, without the `.weight` that most have there. KeyError for a tensor that no
    model has; `expert` only counts where the tensor holds all routed experts."""
    if name in _GLOBAL:
        return _GLOBAL[name]
    _, layer, suffix = name.split(".", 2)
    return f"layers.{layer}.{_LAYER[suffix].format(expert)}"
