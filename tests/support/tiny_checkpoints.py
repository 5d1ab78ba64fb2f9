"""Small random checkpoints in the layout and the formats of the published ones, with the floats they mean."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.gguf.writer import write_gguf
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, TensorSpec, tensor_table
from shared.text import marks
from shared.text.byte_alphabet import ALPHABET
from tests.support.model_files import SMALL, metadata_of

SHAPE = replace(
    SMALL,
    layer_count=3,
    vocabulary_size=320,
    expert_count=2,
    experts_used=2,
    expert_width=256,
    hash_layers=1,
    compress_ratios=(0, 4, 128),
)

Array = npt.NDArray[Any]
Stored = tuple[str, Array, tuple[int, ...]]  # dtype, bytes, shape

_KINDS = {"F32": "<f4", "I64": "<i8"}
_FP8 = [(8 + m) * 2.0 ** (e - 10) if e else m * 2.0**-9 for e in range(16) for m in range(8)][:127]
_FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
# Parameters of a module are called by its name and this; single parameters have no more than a name.
_MODULES = ("wq", "wkv", "wgate", "wo_", "w1", "w2", "w3", "norm", "weights_proj", "embed", "head", "gate")
_NAMES = {  # by the end of a tensor's name in a model file
    "token_embd.weight": "embed", "output_norm.weight": "norm", "output.weight": "head",
    "output_hc_fn.weight": "hc_head_fn", "output_hc_scale.weight": "hc_head_scale",
    "output_hc_base.weight": "hc_head_base", "attn_q_a.weight": "attn.wq_a", "attn_q_b.weight": "attn.wq_b",
    "attn_kv.weight": "attn.wkv", "attn_output_a.weight": "attn.wo_a", "attn_output_b.weight": "attn.wo_b",
    "attn_q_a_norm.weight": "attn.q_norm", "attn_kv_a_norm.weight": "attn.kv_norm",
    "attn_sinks.weight": "attn.attn_sink", "attn_compressor_ape.weight": "attn.compressor.ape",
    "attn_compressor_kv.weight": "attn.compressor.wkv",
    "attn_compressor_gate.weight": "attn.compressor.wgate",
    "attn_compressor_norm.weight": "attn.compressor.norm", "indexer.attn_q_b.weight": "attn.indexer.wq_b",
    "indexer.proj.weight": "attn.indexer.weights_proj",
    "indexer_compressor_ape.weight": "attn.indexer.compressor.ape",
    "indexer_compressor_kv.weight": "attn.indexer.compressor.wkv",
    "indexer_compressor_gate.weight": "attn.indexer.compressor.wgate",
    "indexer_compressor_norm.weight": "attn.indexer.compressor.norm", "ffn_gate_inp.weight": "ffn.gate",
    "exp_probs_b.bias": "ffn.gate.bias", "ffn_gate_tid2eid.weight": "ffn.gate.tid2eid",
    "ffn_gate_shexp.weight": "ffn.shared_experts.w1", "ffn_down_shexp.weight": "ffn.shared_experts.w2",
    "ffn_up_shexp.weight": "ffn.shared_experts.w3", "ffn_gate_exps.weight": "ffn.experts.{}.w1",
    "ffn_down_exps.weight": "ffn.experts.{}.w2", "ffn_up_exps.weight": "ffn.experts.{}.w3",
}  # fmt: skip


class TinyCheckpoint:
    """Random weights: `stored` as they lie in files, `floats` (NumPy order, by the name in a model file) as
    they are meant."""

    def __init__(self, shape: ModelShape = SHAPE, seed: int = 1) -> None:
        self.shape = shape
        self.stored: dict[str, Stored] = {}
        self.floats: dict[str, Array] = {}
        self._random = np.random.default_rng(seed)
        for spec in tensor_table(shape):
            self._add(spec)

    def copy(self) -> TinyCheckpoint:
        """The same weights; what is stored can be changed without changing it here."""
        other = copy(self)
        other.stored = {name: (dtype, data.copy(), size) for name, (dtype, data, size) in self.stored.items()}
        return other

    def write(self, folder: Path, files: int = 2) -> Path:
        """The checkpoint in so many files with an index, or in one without."""
        folder.mkdir(exist_ok=True)
        names = sorted(self.stored)
        parts = [names[number::files] for number in range(files)]
        index = {}
        for number, part in enumerate(parts, 1):
            name = f"model-{number:05}-of-{files:05}.safetensors" if files > 1 else "model.safetensors"
            write_safetensors(folder / name, {tensor: self.stored[tensor] for tensor in part})
            index.update(dict.fromkeys(part, name))
        if files > 1:
            text = json.dumps({"metadata": {"total_size": 0}, "weight_map": index})
            (folder / "model.safetensors.index.json").write_text(text)
        return folder

    def write_config(self, folder: Path) -> None:
        """`config.json` and `tokenizer.json`, as they lie beside the published weights."""
        (folder / "config.json").write_text(json.dumps(config_of(self.shape)))
        (folder / "tokenizer.json").write_text(json.dumps(vocabulary_of(self.shape)))

    def write_template(self, path: Path) -> Path:
        """A model file that has this model's metadata, and no tensors."""
        write_gguf(path, metadata_of(self.shape, name="tiny"), [])
        return path

    def _add(self, spec: TensorSpec) -> None:
        size = tuple(reversed(spec.dims))
        name = _source_name(spec.name)
        if spec.name.endswith("tid2eid.weight"):
            ids = np.stack(
                [self._random.permutation(self.shape.expert_count)[: size[1]] for _ in range(size[0])]
            )
            self.floats[spec.name] = ids
            self.stored[name] = ("I64", ids.astype("<i8"), size)
        elif spec.types == EXPERT_TYPES:
            experts = [self._fp4(name.format(expert), size[1:]) for expert in range(size[0])]
            self.floats[spec.name] = np.stack(experts)
        elif spec.types[0].name == "Q8_0" and not name.startswith("head"):
            self.floats[spec.name] = self._fp8(name, size)
        else:
            self.floats[spec.name] = self._plain(name, size, narrow=spec.types[0].name != "F32")

    def _plain(self, name: str, size: tuple[int, ...], narrow: bool) -> Array:
        values = self._random.standard_normal(size).astype(np.float32) * np.float32(size[-1] ** -0.5)
        if "norm" in name:
            values = values + np.float32(1)
        if narrow:
            values = (values.view("<u4") & np.uint32(0xFFFF0000)).view("<f4")
            self.stored[name] = ("BF16", (values.view("<u4") >> 16).astype("<u2"), size)
        else:
            self.stored[name] = ("F32", values, size)
        return values

    def _fp8(self, name: str, size: tuple[int, ...]) -> Array:
        rows, columns = size
        blocks = (-(-rows // 128), -(-columns // 128))
        exponents = self._random.integers(-9, -6, blocks)
        codes = np.searchsorted(_FP8, np.abs(self._random.standard_normal(size)) * 8).clip(max=126)
        negative = self._random.integers(0, 2, size)
        self.stored[name] = ("F8_E4M3", (codes | negative << 7).astype(np.uint8), size)
        self.stored[_scales(name)] = ("F8_E8M0", (exponents + 127).astype(np.uint8), blocks)
        wide = exponents.repeat(128, axis=0).repeat(128, axis=1)[:rows, :columns]
        return (np.array(_FP8)[codes] * (1 - 2 * negative) * 2.0**wide).astype(np.float32)

    def _fp4(self, name: str, size: tuple[int, ...]) -> Array:
        rows, columns = size
        exponents = self._random.integers(-8, -5, (rows, columns // 32))
        codes = np.searchsorted(_FP4, np.abs(self._random.standard_normal(size)) * 2).clip(max=7)
        negative = self._random.integers(0, 2, size)
        nibbles = codes | negative << 3
        packed = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
        self.stored[name] = ("I8", packed, packed.shape)
        self.stored[_scales(name)] = ("F8_E8M0", (exponents + 127).astype(np.uint8), exponents.shape)
        values = np.array(_FP4)[codes] * (1 - 2 * negative) * 2.0 ** exponents.repeat(32, axis=1)
        return values.astype(np.float32)


def config_of(shape: ModelShape) -> dict[str, Any]:
    """The published configuration's keys with this shape's numbers."""
    return {
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "expert_dtype": "fp4",
        "num_hidden_layers": shape.layer_count, "hidden_size": shape.embedding_width,
        "vocab_size": shape.vocabulary_size, "num_attention_heads": shape.head_count,
        "num_key_value_heads": 1, "head_dim": shape.head_dim, "qk_rope_head_dim": shape.rotary_dim,
        "q_lora_rank": shape.query_rank, "o_lora_rank": shape.output_rank, "o_groups": shape.output_groups,
        "n_routed_experts": shape.expert_count, "num_experts_per_tok": shape.experts_used,
        "n_shared_experts": 1, "moe_intermediate_size": shape.expert_width,
        "num_hash_layers": shape.hash_layers, "sliding_window": shape.window,
        "index_n_heads": shape.index_heads, "index_head_dim": shape.index_dim,
        "index_topk": shape.index_top_k, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
        "rms_norm_eps": 1e-6, "routed_scaling_factor": 1.5, "norm_topk_prob": True, "swiglu_limit": 10.0,
        "scoring_func": "sqrtsoftplus", "rope_theta": 10000, "compress_rope_theta": 160000,
        "rope_scaling": {
            "type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 65536,
        },
        "compress_ratios": [*shape.compress_ratios, 0], "max_position_embeddings": 1 << 20,
    }  # fmt: skip


def vocabulary_of(shape: ModelShape) -> dict[str, Any]:
    """A byte-level vocabulary with the control tokens at its two ends and a few ids left out."""
    first = [marks.BOS, marks.EOS, marks.PAD]
    last = [mark for mark in marks.ALL if mark not in first]
    words = [*first, *ALPHABET, "th", "the"]
    ends = range(shape.vocabulary_size - len(last), shape.vocabulary_size)
    added = [*zip(range(3), first, strict=True), *zip(ends, last, strict=True)]
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": mark, "special": mark not in (marks.THINK, marks.THINK_END)}
            for number, mark in added
        ],
        "model": {
            "type": "BPE",
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": ["t h", ["th", "e"]],
        },
    }


def write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    """A file in the format's plainest form."""
    header, at = {}, 0
    for name, (dtype, data, shape) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, data, _ in tensors.values():
            file.write(data.tobytes())


def write_imatrix(
    path: Path, entries: Mapping[str, Array], dataset: str = "stories", chunks: int = 7
) -> Path:
    """A legacy file of importances."""

    def parts() -> Iterator[bytes]:
        yield len(entries).to_bytes(4, "little")
        for name, values in entries.items():
            yield len(name).to_bytes(4, "little") + name.encode()
            yield (1).to_bytes(4, "little") + values.size.to_bytes(4, "little")
            yield values.astype("<f4").tobytes()
        yield chunks.to_bytes(4, "little") + len(dataset).to_bytes(4, "little") + dataset.encode()

    path.write_bytes(b"".join(parts()))
    return path


def _source_name(name: str) -> str:
    prefix, suffix = "", name
    if name.startswith("blk."):
        _, layer, suffix = name.split(".", 2)
        prefix = f"layers.{layer}."
    base = prefix + _NAMES.get(suffix, suffix.removesuffix(".weight"))
    last = base.rsplit(".", 1)[-1]
    module = last.startswith(_MODULES) or last.endswith("norm")
    return base + ".weight" if module else base


def _scales(name: str) -> str:
    return name.removesuffix(".weight") + ".scale"
