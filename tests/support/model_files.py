"""Model files made from a shape: complete in header and directory, with holes where the weights would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from shared.gguf.types import TensorType, ValueType
from shared.gguf.writer import ArrayValue, MetadataEntry, TensorData, encode_header
from shared.model.known_shapes import FLASH, FLOAT_KEYS, INTEGER_KEYS, PREFIX
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, tensor_table

# A small admissible shape whose numbers are all different where they may be.
SMALL = replace(
    FLASH,
    variant="test",
    layer_count=4,
    embedding_width=256,
    vocabulary_size=40,
    head_count=4,
    head_dim=192,
    query_rank=96,
    output_rank=32,
    output_groups=2,
    expert_count=8,
    experts_used=3,
    expert_width=512,
    hash_layers=1,
    index_heads=16,
    index_top_k=16,
    compress_ratios=(0, 4, 128, 4),
)

Expert = tuple[TensorType, TensorType]  # gate and up, down
Q2: Expert = (TensorType.IQ2_XXS, TensorType.Q2_K)
Q4: Expert = (TensorType.Q4_K, TensorType.Q4_K)
MXFP4: Expert = (TensorType.MXFP4, TensorType.MXFP4)


def shape_metadata(shape: ModelShape, *, name: str = "A model") -> list[MetadataEntry]:
    """All keys of a model of this shape but the vocabulary."""
    ratios = [*shape.compress_ratios, 0]  # one more, as for a draft block
    return [
        ("general.architecture", ValueType.STRING, "deepseek4"),
        ("general.name", ValueType.STRING, name),
        *[(PREFIX + entry.key, ValueType.UINT32, entry.of(shape)) for entry in INTEGER_KEYS],
        *[(PREFIX + entry.key, ValueType.FLOAT32, getattr(shape, entry.field)) for entry in FLOAT_KEYS],
        (PREFIX + "context_length", ValueType.UINT32, 1 << 20),
        (PREFIX + "expert_weights_norm", ValueType.BOOL, True),
        (PREFIX + "expert_group_count", ValueType.UINT32, 0),
        (PREFIX + "rope.scaling.original_context_length", ValueType.UINT32, shape.rope_original_context),
        (PREFIX + "attention.compress_ratios", ValueType.ARRAY, ArrayValue(ValueType.INT32, ratios)),
        (
            PREFIX + "swiglu_clamp_exp",
            ValueType.ARRAY,
            ArrayValue(ValueType.FLOAT32, [shape.swiglu_clamp] * shape.layer_count),
        ),
    ]


def metadata_of(shape: ModelShape, *, name: str = "A model", merges: int = 3) -> list[MetadataEntry]:
    """All keys of a model of this shape, with a vocabulary of the right size."""
    return [
        *shape_metadata(shape, name=name),
        ("tokenizer.ggml.model", ValueType.STRING, "gpt2"),
        ("tokenizer.ggml.pre", ValueType.STRING, "joyai-llm"),
        (
            "tokenizer.ggml.tokens",
            ValueType.ARRAY,
            ArrayValue(ValueType.STRING, [f"word{number}" for number in range(shape.vocabulary_size)]),
        ),
        (
            "tokenizer.ggml.merges",
            ValueType.ARRAY,
            ArrayValue(ValueType.STRING, [f"left{number} right{number}" for number in range(merges)]),
        ),
    ]


def tensors_of(shape: ModelShape, experts: Callable[[int], Expert] = lambda layer: Q2) -> list[TensorData]:
    """All tensors of a model of this shape, without data. `experts` gives a layer's expert types."""
    tensors = []
    for spec in tensor_table(shape):
        kind = spec.types[0]
        if spec.types == EXPERT_TYPES:
            gate, down = experts(int(spec.name.split(".")[1]))
            kind = down if "_down_" in spec.name else gate
        tensors.append(TensorData(spec.name, kind, spec.dims, b""))
    return tensors


def write_hollow(path: Path, metadata: Sequence[MetadataEntry], tensors: Sequence[TensorData]) -> Path:
    """A file with a complete header and a hole of the right size for the data."""
    header = encode_header(metadata, tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(-(-tensor.nbytes // 32) * 32 for tensor in tensors))
    return path
