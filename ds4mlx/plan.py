"""What a model file will take in memory on this backend, told from its header before anything is loaded.

Mirrors the storage that `weights.WeightReader` chooses; a test compares the two byte for byte.
Must not know: sessions, the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ds4mlx.scratch import scratch_bytes
from ds4mlx.settings import prepare_environment
from shared.gguf.reader import TensorInfo
from shared.gguf.types import TensorType
from shared.model.frontier import frontier_slots, frontier_widths
from shared.model.memory import DEFAULT_PREFILL_CHUNK, memory_plan
from shared.model.open import ModelFile
from shared.model.shape import ModelShape
from shared.model.tensors import tensor_table
from shared.session import MemoryPlan, MemoryPlanner

# A model whose expanded experts stay below this many bytes keeps them expanded when it runs on the CPU.
EXPANDED_EXPERTS_LIMIT = 512 << 20
# 32 weights of a Q8_0 matrix in MLX's 8-bit layout: codes, scale, bias.
_PACKED_GROUP, _PACKED_GROUP_BYTES = 32, 32 + 4 + 4


@dataclass(frozen=True, slots=True)
class Storage:
    """How weights are kept: `packed` small for the GPU, else as float32, which the CPU multiplies faster;
    `expand_experts`: routed experts as float32 too."""

    packed: bool
    expand_experts: bool
    streams: int

    @classmethod
    def for_device(cls, shape: ModelShape) -> Storage:
        """What suits MLX's default device."""
        prepare_environment()
        import mlx.core as mx

        if mx.default_device() != mx.Device(mx.cpu):
            return cls.for_gpu(shape)
        expands = expanded_expert_bytes(shape) <= EXPANDED_EXPERTS_LIMIT
        return cls(packed=False, expand_experts=expands, streams=shape.streams)

    @classmethod
    def for_gpu(cls, shape: ModelShape) -> Storage:
        """What a GPU holds."""
        return cls(packed=True, expand_experts=False, streams=shape.streams)

    def tensor_bytes(self, info: TensorInfo) -> int:
        """Bytes of one tensor once it is loaded."""
        elements = 1
        for size in info.dims:
            elements *= size
        if info.name == "token_embd.weight":
            return elements * 2
        if "_exps." in info.name:
            return elements * 4 if self.expand_experts else info.nbytes
        if info.name.endswith("_ape.weight"):
            # A row of zeros beside it: the same addition serves keys and scores.
            return elements * 4 * 2
        if info.name.endswith("output_hc_scale.weight"):
            return self.streams * 4
        if info.name.endswith("_scale.weight"):
            # One for each output of a mix.
            return self.streams * (2 + self.streams) * 4
        return _packed_bytes(info.type, elements) if self.packed else elements * 4


def _packed_bytes(kind: TensorType, elements: int) -> int:
    if kind is TensorType.Q8_0:
        return elements // _PACKED_GROUP * _PACKED_GROUP_BYTES
    return elements * (2 if kind is TensorType.F16 else 4)


def expanded_expert_bytes(shape: ModelShape) -> int:
    """Bytes of all routed experts as float32."""
    return shape.layer_count * shape.expert_count * 3 * shape.embedding_width * shape.expert_width * 4


def weight_bytes(model: ModelFile, storage: Storage) -> int:
    """Bytes of all weights once they are loaded."""
    tensors = model.gguf.tensors
    return sum(
        storage.tensor_bytes(tensors[spec.name]) for spec in tensor_table(model.shape) if spec.name in tensors
    )


def planner(model: ModelFile, prefill_chunk: int | None = None, *, gpu: bool = False) -> MemoryPlanner:
    """The memory plans of `model` on the default device or, with `gpu`, on any GPU, which needs no MLX."""
    storage = Storage.for_gpu(model.shape) if gpu else Storage.for_device(model.shape)
    return partial(
        session_plan,
        model.shape,
        weights=weight_bytes(model, storage),
        prefill_chunk=DEFAULT_PREFILL_CHUNK if prefill_chunk is None else prefill_chunk,
    )


def session_plan(
    shape: ModelShape, context: int, *, weights: int, prefill_chunk: int, row_bytes: int = 2
) -> MemoryPlan:
    """As `shared.model.memory.memory_plan`, with the rings of this backend and the memory that a step needs
    here; `row_bytes` of a stored number are 4 where rows are not rounded."""
    common = memory_plan(
        shape, context, weights=weights, prefill_chunk=prefill_chunk, attention_row_bytes=row_bytes
    )
    rings = ring_bytes(shape, context, row_bytes)
    # Until a step is done it has its rows beside those of the rings.
    scratch = rings + scratch_bytes(shape, context, common.prefill_chunk, row_bytes)
    return replace(common, raw=rings, scratch=scratch)


def ring_bytes(shape: ModelShape, context: int, row_bytes: int) -> int:
    """Of all layers' rings of raw rows, and of compressed layers' frontiers."""
    raw = shape.layer_count * min(shape.window + 1, context) * shape.head_dim * row_bytes
    frontiers = (frontier_slots(r) * sum(frontier_widths(shape, r)) for r in shape.compress_ratios if r)
    return raw + 4 * sum(frontiers)
