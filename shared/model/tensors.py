"""The tensor table: every tensor that a shape needs, with its dimensions and the types it may have.

Owns names, dimensions and types, and the check of a file's directory against them. Reads no data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from shared.gguf.directory import TensorInfo
from shared.gguf.mapping import shown
from shared.gguf.types import TensorType
from shared.model.shape import ModelShape

F32 = (TensorType.F32,)
F16 = (TensorType.F16,)
I32 = (TensorType.I32,)
Q8_0 = (TensorType.Q8_0,)
EXPERT_TYPES = (TensorType.IQ2_XXS, TensorType.Q2_K, TensorType.Q4_K, TensorType.MXFP4)

_RECIPE_HINT = " (not quantised by a V4 recipe: `ds4 pull --list` names files that work)"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that a model needs. `dims` is in file order: a matrix is [inputs, outputs]."""

    name: str
    dims: tuple[int, ...]
    types: tuple[TensorType, ...]
    optional: bool = False


def tensor_table(shape: ModelShape) -> list[TensorSpec]:
    """All tensors of a model of this shape, layer by layer (spec: model §2)."""
    width, vocabulary, streams = shape.embedding_width, shape.vocabulary_size, shape.streams
    table = [
        TensorSpec("token_embd.weight", (width, vocabulary), F16),
        TensorSpec("output_hc_fn.weight", (streams * width, streams), F16),
        TensorSpec("output_hc_scale.weight", (1,), F32),
        TensorSpec("output_hc_base.weight", (streams,), F32),
        TensorSpec("output_norm.weight", (width,), F32),
        TensorSpec("output.weight", (width, vocabulary), Q8_0),
    ]
    for layer in range(shape.layer_count):
        table += _layer(shape, layer)
    return table


def _layer(shape: ModelShape, layer: int) -> list[TensorSpec]:
    prefix = f"blk.{layer}."
    ratio = shape.compress_ratios[layer]
    entries = _hyper_connections(shape) + _attention(shape)
    if ratio:
        entries += _compressor(shape, ratio)
    if ratio == 4:
        entries += _indexer(shape)
    entries += _feed_forward(shape, hashed=layer < shape.hash_layers)
    return [TensorSpec(prefix + entry.name, entry.dims, entry.types, entry.optional) for entry in entries]


def _hyper_connections(shape: ModelShape) -> list[TensorSpec]:
    entries = []
    for half in ("attn", "ffn"):
        entries += [
            TensorSpec(f"hc_{half}_fn.weight", (shape.streams * shape.embedding_width, shape.mix_width), F16),
            TensorSpec(f"hc_{half}_scale.weight", (3,), F32),
            TensorSpec(f"hc_{half}_base.weight", (shape.mix_width,), F32),
        ]
    return entries


def _attention(shape: ModelShape) -> list[TensorSpec]:
    width, rank = shape.embedding_width, shape.query_rank
    low = shape.output_groups * shape.output_rank
    group_width = shape.head_count // shape.output_groups * shape.head_dim
    return [
        TensorSpec("attn_norm.weight", (width,), F32),
        TensorSpec("attn_q_a.weight", (width, rank), Q8_0),
        TensorSpec("attn_q_a_norm.weight", (rank,), F32),
        TensorSpec("attn_q_b.weight", (rank, shape.head_count * shape.head_dim), Q8_0),
        TensorSpec("attn_kv.weight", (width, shape.head_dim), Q8_0),
        TensorSpec("attn_kv_a_norm.weight", (shape.head_dim,), F32),
        TensorSpec("attn_sinks.weight", (shape.head_count,), F32),
        TensorSpec("attn_output_a.weight", (group_width, low), Q8_0),
        TensorSpec("attn_output_b.weight", (low, width), Q8_0),
    ]


def _compressor(shape: ModelShape, ratio: int) -> list[TensorSpec]:
    channels = shape.head_dim * (2 if ratio == 4 else 1)  # ratio 4 overlaps two windows
    return [
        TensorSpec("attn_compressor_ape.weight", (channels, ratio), F16),
        TensorSpec("attn_compressor_kv.weight", (shape.embedding_width, channels), F16),
        TensorSpec("attn_compressor_gate.weight", (shape.embedding_width, channels), F16),
        TensorSpec("attn_compressor_norm.weight", (shape.head_dim,), F32),
    ]


def _indexer(shape: ModelShape) -> list[TensorSpec]:
    width, channels = shape.embedding_width, 2 * shape.index_dim
    return [
        TensorSpec("indexer.attn_q_b.weight", (shape.query_rank, shape.index_heads * shape.index_dim), F16),
        TensorSpec("indexer.proj.weight", (width, shape.index_heads), F16),
        TensorSpec("indexer_compressor_ape.weight", (channels, 4), F16),
        TensorSpec("indexer_compressor_kv.weight", (width, channels), F16),
        TensorSpec("indexer_compressor_gate.weight", (width, channels), F16),
        TensorSpec("indexer_compressor_norm.weight", (shape.index_dim,), F32),
    ]


def _feed_forward(shape: ModelShape, *, hashed: bool) -> list[TensorSpec]:
    width, inner, experts = shape.embedding_width, shape.expert_width, shape.expert_count
    if hashed:
        routing = TensorSpec("ffn_gate_tid2eid.weight", (shape.experts_used, shape.vocabulary_size), I32)
    else:
        routing = TensorSpec("exp_probs_b.bias", (experts,), F32, optional=True)
    return [
        TensorSpec("ffn_norm.weight", (width,), F32),
        TensorSpec("ffn_gate_inp.weight", (width, experts), F16),
        routing,
        TensorSpec("ffn_gate_exps.weight", (width, inner, experts), EXPERT_TYPES),
        TensorSpec("ffn_up_exps.weight", (width, inner, experts), EXPERT_TYPES),
        TensorSpec("ffn_down_exps.weight", (inner, width, experts), EXPERT_TYPES),
        TensorSpec("ffn_gate_shexp.weight", (width, inner), Q8_0),
        TensorSpec("ffn_up_shexp.weight", (width, inner), Q8_0),
        TensorSpec("ffn_down_shexp.weight", (inner, width), Q8_0),
    ]


def check_tensors(tensors: Mapping[str, TensorInfo], shape: ModelShape) -> list[str]:
    """Every mismatch between a file's tensors and the table: missing, dimensions, type, expert pairing.

    Tensors that the table does not list are ignored, but looked at for a hint where one is missing.
    """
    table = tensor_table(shape)
    hints = _Hints(tensors, table)
    problems = []
    for spec in table:
        info = tensors.get(spec.name)
        if info is None:
            if not spec.optional:
                problems.append(f"tensor '{spec.name}' is missing{hints.renamed(spec)}")
            continue
        if info.dims != spec.dims:
            problems.append(
                f"tensor '{spec.name}' has the dimensions {list(info.dims)}, expected {list(spec.dims)}"
                f"{hints.swapped(spec, info)}"
            )
        if info.type not in spec.types:
            wanted = ", ".join(type.name for type in spec.types)
            problems.append(f"tensor '{spec.name}' is {_type_name(info)}, expected {wanted}{_RECIPE_HINT}")
    for layer in range(shape.layer_count):
        problems += _check_experts(tensors, layer)
    return problems


def expert_types(tensors: Mapping[str, TensorInfo], layer: int) -> tuple[TensorType, TensorType, TensorType]:
    """Types of a layer's routed gate, up and down experts. KeyError when one is missing."""
    gate, up, down = (tensors[f"blk.{layer}.ffn_{part}_exps.weight"].type for part in ("gate", "up", "down"))
    return gate, up, down


def _check_experts(tensors: Mapping[str, TensorInfo], layer: int) -> list[str]:
    try:
        types = expert_types(tensors, layer)
    except KeyError:
        return []
    if any(type not in EXPERT_TYPES for type in types):
        return []  # told already
    gate, up, down = types
    if gate is not up:
        return [
            f"the routed experts of layer {layer} have gate {gate.name} but up {up.name}: they must be equal"
        ]
    if (gate is TensorType.MXFP4) != (down is TensorType.MXFP4):
        return [
            f"the routed experts of layer {layer} have gate {gate.name} and down {down.name}: "
            "MXFP4 is only possible for gate, up and down together"
        ]
    return []


def _type_name(info: TensorInfo) -> str:
    return f"of the unknown type {info.type_id}" if info.type is TensorType.UNKNOWN else info.type.name


class _Hints:
    """Guesses what went wrong with a tensor, from the others in the file."""

    def __init__(self, tensors: Mapping[str, TensorInfo], table: list[TensorSpec]) -> None:
        listed = {spec.name for spec in table}
        self._unlisted: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
        for info in tensors.values():
            if info.name not in listed:
                self._unlisted[_layer_prefix(info.name), info.dims].append(info.name)
        # (dimensions found, dimensions expected) -> names, to find a partner the other way round
        self._misfits: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = defaultdict(list)
        for spec in table:
            found = tensors.get(spec.name)
            if found is not None and found.dims != spec.dims:
                self._misfits[found.dims, spec.dims].append(spec.name)

    def renamed(self, spec: TensorSpec) -> str:
        candidates = self._unlisted.get((_layer_prefix(spec.name), spec.dims), [])
        return f" (is it {shown(candidates[0])}, which has these dimensions?)" if len(candidates) == 1 else ""

    def swapped(self, spec: TensorSpec, info: TensorInfo) -> str:
        partners = self._misfits.get((spec.dims, info.dims), [])
        return f" (swapped with '{partners[0]}'?)" if partners else ""


def _layer_prefix(name: str) -> str:
    parts = name.split(".", 2)
    return f"{parts[0]}.{parts[1]}" if parts[0] == "blk" and len(parts) == 3 else ""
