"""What a model file will take in device memory, told from its header before anything is loaded.

Mirrors the storage that `weights.WeightReader` chooses; a test compares the two. Must not know: sessions, the
forward pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ds4cuda.scratch import scratch_bytes
from shared.gguf.reader import TensorInfo
from shared.model.memory import DEFAULT_PREFILL_CHUNK, memory_plan, prefill_cap, raw_capacity
from shared.model.open import ModelFile
from shared.model.shape import ModelShape
from shared.model.tensors import tensor_table
from shared.session import MemoryPlan, MemoryPlanner

_MAGNITUDES_BYTES = 2048


def weight_bytes(model: ModelFile) -> int:
    """Bytes of all weights once they are loaded."""
    tensors, shape = model.gguf.tensors, model.shape
    held = [tensors[spec.name] for spec in tensor_table(shape) if spec.name in tensors]
    # Layers without a selection bias of their own get one of zeros.
    biased = sum(info.name.endswith("exp_probs_b.bias") for info in held)
    unbiased = (shape.layer_count - biased) * shape.expert_count * 4
    return sum(_tensor_bytes(info, shape) for info in held) + unbiased + _MAGNITUDES_BYTES


def planner(model: ModelFile, prefill_chunk: int | None = None) -> MemoryPlanner:
    """The memory plans of `model`."""
    return partial(
        session_plan,
        model.shape,
        weights=weight_bytes(model),
        prefill_chunk=DEFAULT_PREFILL_CHUNK if prefill_chunk is None else prefill_chunk,
    )


def session_plan(
    shape: ModelShape, context: int, *, weights: int, prefill_chunk: int, row_bytes: int = 2
) -> MemoryPlan:
    """As `shared.model.memory.memory_plan`, with the rings and the scratch memory of this backend;
    `row_bytes` of a stored number are 4 where rows are not rounded."""
    chunk = prefill_cap(context, prefill_chunk)
    common = memory_plan(
        shape, context, weights=weights, prefill_chunk=prefill_chunk, attention_row_bytes=row_bytes
    )
    ring = shape.layer_count * raw_capacity(context, chunk, shape.window) * shape.head_dim * row_bytes
    return replace(common, raw=ring, scratch=scratch_bytes(shape, chunk))


def _tensor_bytes(info: TensorInfo, shape: ModelShape) -> int:
    if info.name.endswith("_ape.weight"):
        return 2 * info.nbytes  # a row of zeros beside it: the same addition serves keys and scores
    if info.name.endswith("output_hc_scale.weight"):
        return shape.streams * 4
    if info.name.endswith("_scale.weight"):
        return shape.mix_width * 4  # one for each output of a mix
    return info.nbytes
