"""Trained weights as a model file that every engine opens, routed experts in MXFP4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.embedded_model import vocabulary
from bench.embedded_model.blocks import mxfp4, q8_0
from shared.gguf.types import TensorType, ValueType
from shared.gguf.writer import ArrayValue, MetadataEntry, TensorData, write_gguf
from shared.model.known_shapes import FLOAT_KEYS, INTEGER_KEYS, PREFIX
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, tensor_table
from shared.text import marks

NAME = "ds4 demonstration model"
CONTEXT = 8192

Array = npt.NDArray[np.generic]


def write_model(path: Path, weights: Mapping[str, Array], shape: ModelShape) -> None:
    """Writes `weights`, arrays by tensor name in NumPy order, with metadata and vocabulary."""
    tensors = []
    for spec in tensor_table(shape):
        kind = TensorType.MXFP4 if spec.types == EXPERT_TYPES else spec.types[0]
        data = _encoded(kind, weights[spec.name])
        tensors.append(TensorData(spec.name, kind, spec.dims, data))
    write_gguf(path, metadata(shape), tensors)


def _encoded(kind: TensorType, values: Array) -> bytes:
    if kind is TensorType.Q8_0:
        return q8_0(values.astype(np.float32)).tobytes()
    if kind is TensorType.MXFP4:
        return mxfp4(values.astype(np.float32)).tobytes()
    plain = {TensorType.F32: "<f4", TensorType.F16: "<f2", TensorType.I32: "<i4"}[kind]
    return values.astype(plain).tobytes()


def metadata(shape: ModelShape) -> list[MetadataEntry]:
    """Every key that the reader of model files wants, the vocabulary included."""
    tokens, merges = vocabulary.read()
    control = set(vocabulary.SPECIALS)
    kinds = [3 if token in control else 1 for token in tokens]
    clamps = [shape.swiglu_clamp] * shape.layer_count
    return [
        ("general.architecture", ValueType.STRING, "deepseek4"),
        ("general.name", ValueType.STRING, NAME),
        *[(PREFIX + entry.key, ValueType.UINT32, entry.of(shape)) for entry in INTEGER_KEYS],
        *[(PREFIX + entry.key, ValueType.FLOAT32, getattr(shape, entry.field)) for entry in FLOAT_KEYS],
        (PREFIX + "context_length", ValueType.UINT32, CONTEXT),
        (PREFIX + "expert_weights_norm", ValueType.BOOL, True),
        (PREFIX + "expert_group_count", ValueType.UINT32, 0),
        (PREFIX + "rope.scaling.type", ValueType.STRING, "yarn"),
        (PREFIX + "rope.scaling.original_context_length", ValueType.UINT32, shape.rope_original_context),
        (
            PREFIX + "attention.compress_ratios",
            ValueType.ARRAY,
            _array(ValueType.INT32, shape.compress_ratios),
        ),
        (PREFIX + "swiglu_clamp_exp", ValueType.ARRAY, _array(ValueType.FLOAT32, clamps)),
        ("tokenizer.ggml.model", ValueType.STRING, "gpt2"),
        ("tokenizer.ggml.pre", ValueType.STRING, "joyai-llm"),
        ("tokenizer.ggml.tokens", ValueType.ARRAY, _array(ValueType.STRING, tokens)),
        ("tokenizer.ggml.token_type", ValueType.ARRAY, _array(ValueType.INT32, kinds)),
        ("tokenizer.ggml.merges", ValueType.ARRAY, _array(ValueType.STRING, merges)),
        ("tokenizer.ggml.bos_token_id", ValueType.UINT32, tokens.index(marks.BOS)),
        ("tokenizer.ggml.eos_token_id", ValueType.UINT32, tokens.index(marks.EOS)),
        ("tokenizer.ggml.padding_token_id", ValueType.UINT32, tokens.index(marks.PAD)),
        ("tokenizer.ggml.add_bos_token", ValueType.BOOL, False),
    ]


def _array(kind: ValueType, items: Sequence[object]) -> ArrayValue:
    return ArrayValue(kind, list(items))
