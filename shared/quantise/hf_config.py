"""Metadata of a model file from the `config.json` and `tokenizer.json` beside a checkpoint.

Translates names; whether the numbers make a model that can be run is judged by the reader of model files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.gguf.mapping import shown
from shared.gguf.types import ValueType
from shared.gguf.writer import ArrayValue, MetadataEntry
from shared.model.known_shapes import PREFIX
from shared.quantise.hf_vocabulary import Vocabulary, read_vocabulary
from shared.quantise.safetensors import CheckpointError
from shared.text import marks

CONFIG = "config.json"
VOCABULARY = "tokenizer.json"
MODEL_TYPE = "deepseek_v4"
_SCORING = "sqrtsoftplus"
_MOST_BYTES = 100_000_000

_INTEGERS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "vocab_size": "vocab_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "rope.dimension_count": "qk_rope_head_dim",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.output_lora_rank": "o_lora_rank",
    "attention.output_group_count": "o_groups",
    "expert_count": "n_routed_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "hash_layer_count": "num_hash_layers",
    "attention.sliding_window": "sliding_window",
    "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim",
    "attention.indexer.top_k": "index_topk",
    "hyper_connection.count": "hc_mult",
    "hyper_connection.sinkhorn_iterations": "hc_sinkhorn_iters",
}
_FLOATS = {
    "hyper_connection.epsilon": "hc_eps",
    "rope.freq_base": "rope_theta",
    "attention.compress_rope_freq_base": "compress_rope_theta",
    "rope.scaling.factor": "rope_scaling.factor",
    "rope.scaling.yarn_beta_fast": "rope_scaling.beta_fast",
    "rope.scaling.yarn_beta_slow": "rope_scaling.beta_slow",
    "expert_weights_scale": "routed_scaling_factor",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}


def checkpoint_metadata(folder: Path) -> list[MetadataEntry]:
    """Every key of a model file, in order. Raises CheckpointError for files that are missing, damaged or of
    another architecture."""
    config = _Config(folder / CONFIG, _read_json(folder / CONFIG))
    if config.held.get("model_type") != MODEL_TYPE or config.held.get("scoring_func", _SCORING) != _SCORING:
        raise config.wrong(f"it is not of the model type {MODEL_TYPE}")
    vocabulary = read_vocabulary(
        folder / VOCABULARY, _read_json(folder / VOCABULARY), config.integer("vocab_size")
    )
    given = config.held.get("_name_or_path")
    name = given if isinstance(given, str) and given.isprintable() and given else folder.resolve().name
    layers = config.integer("num_hidden_layers")
    ratios = ArrayValue(ValueType.INT32, config.integers("compress_ratios"))
    clamps = ArrayValue(ValueType.FLOAT32, [config.number("swiglu_limit")] * min(layers, 1 << 16))
    return [
        ("general.architecture", ValueType.STRING, "deepseek4"),
        ("general.name", ValueType.STRING, name),
        *[(PREFIX + key, ValueType.UINT32, config.integer(source)) for key, source in _INTEGERS.items()],
        (PREFIX + "expert_group_count", ValueType.UINT32, 0),
        (PREFIX + "expert_group_used_count", ValueType.UINT32, 0),
        (PREFIX + "expert_weights_norm", ValueType.BOOL, config.held.get("norm_topk_prob", True) is True),
        *[(PREFIX + key, ValueType.FLOAT32, config.number(source)) for key, source in _FLOATS.items()],
        (PREFIX + "rope.scaling.type", ValueType.STRING, "yarn"),
        (
            PREFIX + "rope.scaling.original_context_length",
            ValueType.UINT32,
            config.integer("rope_scaling.original_max_position_embeddings"),
        ),
        (PREFIX + "attention.compress_ratios", ValueType.ARRAY, ratios),
        (PREFIX + "swiglu_clamp_exp", ValueType.ARRAY, clamps),
        *_vocabulary_entries(vocabulary),
    ]


class _Config:
    """A configuration and the complaints about it. `a.b` names the member b of the member a."""

    def __init__(self, path: Path, held: Mapping[str, Any]) -> None:
        self.held = held
        self._path = path

    def wrong(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self._path} cannot be used: {reason}")

    def integer(self, key: str) -> int:
        value = self._value(key)
        if type(value) is not int or not 0 <= value < 1 << 32:
            raise self.wrong(f"{key} is {shown(str(value))}, not a whole number")
        return value

    def number(self, key: str) -> float:
        value = self._value(key)
        if type(value) not in (int, float) or not abs(value) < 1e30:
            raise self.wrong(f"{key} is {shown(str(value))}, not a number")
        return float(value)

    def integers(self, key: str) -> Sequence[int]:
        value = self._value(key)
        if not isinstance(value, list) or not all(
            type(item) is int and 0 <= item < 1 << 31 for item in value
        ):
            raise self.wrong(f"{key} is not a list of whole numbers")
        return value

    def _value(self, key: str) -> Any:
        found: Any = self.held
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            raise self.wrong(f"{key} is missing")
        return found


def _vocabulary_entries(vocabulary: Vocabulary) -> list[MetadataEntry]:
    prefix = "tokenizer.ggml."
    ids = {token: number for number, token in reversed(list(enumerate(vocabulary.tokens)))}
    special = (("bos", marks.BOS), ("eos", marks.EOS), ("padding", marks.PAD))
    return [
        (prefix + "model", ValueType.STRING, "gpt2"),
        (prefix + "pre", ValueType.STRING, "joyai-llm"),
        (prefix + "tokens", ValueType.ARRAY, ArrayValue(ValueType.STRING, vocabulary.tokens)),
        (prefix + "token_type", ValueType.ARRAY, ArrayValue(ValueType.INT32, vocabulary.kinds)),
        (prefix + "merges", ValueType.ARRAY, ArrayValue(ValueType.STRING, vocabulary.merges)),
        *[(f"{prefix}{key}_token_id", ValueType.UINT32, ids[mark]) for key, mark in special if mark in ids],
        (prefix + "add_bos_token", ValueType.BOOL, False),
    ]


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"there is no {path}: add it, or name a model file with --template")
    if path.stat().st_size > _MOST_BYTES:
        raise CheckpointError(f"{path} is too large to be what its name says")
    try:
        held = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    if not isinstance(held, dict):
        raise CheckpointError(f"{path} is damaged: it holds no object")
    return held
