"""The layout of the published checkpoints: `config.json`, `tokenizer.json`, weights and their index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.model.shape import ModelShape
from shared.quantise.hf_config import CONFIG, MODEL_TYPE, VOCABULARY
from shared.quantise.safetensors import INDEX
from shared.text import marks

WEIGHTS = "model-00001-of-00001.safetensors"


@dataclass(frozen=True, slots=True)
class StoredArray:
    """A tensor as it lies in a file: its type there, its bytes as an array, and its shape in NumPy order."""

    dtype: str
    data: npt.NDArray[Any]
    shape: tuple[int, ...]


def write_weights(folder: Path, tensors: Mapping[str, StoredArray]) -> None:
    """The one file of weights, tensors in the order given, and the index that lists it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        end = at + tensor.data.nbytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with (folder / WEIGHTS).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor.data).tobytes())
    index = {"metadata": {"total_size": at}, "weight_map": dict.fromkeys(tensors, WEIGHTS)}
    _write_json(folder / INDEX, index)


def write_config(folder: Path, shape: ModelShape, name: str, context: int) -> None:
    """The published configuration's keys with this shape's numbers."""
    held = {
        "_name_or_path": name,
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": MODEL_TYPE,
        "expert_dtype": "fp4",
        "num_hidden_layers": shape.layer_count,
        "hidden_size": shape.embedding_width,
        "vocab_size": shape.vocabulary_size,
        "max_position_embeddings": context,
        "num_attention_heads": shape.head_count,
        "num_key_value_heads": 1,
        "head_dim": shape.head_dim,
        "qk_rope_head_dim": shape.rotary_dim,
        "q_lora_rank": shape.query_rank,
        "o_lora_rank": shape.output_rank,
        "o_groups": shape.output_groups,
        "n_routed_experts": shape.expert_count,
        "num_experts_per_tok": shape.experts_used,
        "n_shared_experts": shape.shared_experts,
        "moe_intermediate_size": shape.expert_width,
        "num_hash_layers": shape.hash_layers,
        "routed_scaling_factor": shape.expert_weight_scale,
        "norm_topk_prob": True,
        "scoring_func": "sqrtsoftplus",
        "swiglu_limit": shape.swiglu_clamp,
        "sliding_window": shape.window,
        "compress_ratios": list(shape.compress_ratios),
        "index_n_heads": shape.index_heads,
        "index_head_dim": shape.index_dim,
        "index_topk": shape.index_top_k,
        "hc_mult": shape.streams,
        "hc_sinkhorn_iters": shape.sinkhorn_rounds,
        "hc_eps": shape.hyper_connection_epsilon,
        "rms_norm_eps": shape.rms_epsilon,
        "rope_theta": shape.rope_base,
        "compress_rope_theta": shape.compress_rope_base,
        "rope_scaling": {
            "type": "yarn",
            "factor": shape.rope_scale,
            "beta_fast": shape.yarn_beta_fast,
            "beta_slow": shape.yarn_beta_slow,
            "original_max_position_embeddings": shape.rope_original_context,
        },
    }
    _write_json(folder / CONFIG, held)


def write_vocabulary(
    folder: Path, tokens: Sequence[str], merges: Sequence[str], specials: Sequence[str]
) -> None:
    """`tokenizer.json`: tokens by id, merges by rank; `specials` are the added ones."""
    added = [
        {"id": tokens.index(mark), "content": mark, "special": mark not in (marks.THINK, marks.THINK_END)}
        for mark in specials
    ]
    words = {token: number for number, token in enumerate(tokens) if token not in specials}
    model = {"type": "BPE", "vocab": words, "merges": list(merges)}
    _write_json(folder / VOCABULARY, {"version": "1.0", "added_tokens": added, "model": model})


def _write_json(path: Path, held: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(held, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
