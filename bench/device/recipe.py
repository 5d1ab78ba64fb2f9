"""The q2 recipe: of which types a model's tensors are, and what part of a model fits.

Must not know: files, GPUs.
"""

from __future__ import annotations

from dataclasses import replace

from shared.gguf.directory import tensor_bytes
from shared.gguf.types import TensorType
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, TensorSpec, tensor_table

# Of the family's shapes the first layers with every compression ratio and both ways of routing.
_FEWEST_LAYERS = 4


def tensor_type(spec: TensorSpec) -> TensorType:
    if spec.types is not EXPERT_TYPES:
        return spec.types[0]
    return TensorType.Q2_K if "down" in spec.name else TensorType.IQ2_XXS


def weight_bytes(shape: ModelShape) -> int:
    """Of all tensors of a model."""
    return sum(tensor_bytes(tensor_type(spec), spec.dims) for spec in tensor_table(shape))


def with_layers(shape: ModelShape, layers: int) -> ModelShape:
    """The first layers of a shape."""
    return replace(shape, layer_count=layers, compress_ratios=shape.compress_ratios[:layers])


def fitting_layers(shape: ModelShape, nbytes: int) -> int:
    """Layers whose weights take at most so many bytes; never less than four."""
    for layers in range(shape.layer_count, _FEWEST_LAYERS, -1):
        if weight_bytes(with_layers(shape, layers)) <= nbytes:
            return layers
    return min(_FEWEST_LAYERS, shape.layer_count)
