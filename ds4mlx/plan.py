"""What a model file will take in memory on this backend, told from its header before anything is loaded.

Mirrors the storage that `weights.WeightReader` chooses; a test compares the two byte for byte.
Must not know: sessions, the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4mlx.settings import prepare_environment
from shared.gguf.reader import TensorInfo
from shared.gguf.types import TensorType
from shared.model.memory import DEFAULT_PREFILL_CHUNK, memory_plan
from shared.model.open import ModelFile
from shared.model.shape import ModelShape
from shared.model.tensors import tensor_table
from shared.session import MemoryPlan

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


def plan(
    model: ModelFile, context: int, prefill_chunk: int | None = None, *, gpu: bool = False
) -> MemoryPlan:
    """The memory plan of `model` with one session of `context` tokens, on the default device or, with `gpu`,
    on any GPU, which needs no MLX here."""
    storage = Storage.for_gpu(model.shape) if gpu else Storage.for_device(model.shape)
    return memory_plan(
        model.shape,
        context,
        weights=weight_bytes(model, storage),
        prefill_chunk=DEFAULT_PREFILL_CHUNK if prefill_chunk is None else prefill_chunk,
    )
