"""A model with the layers of Flash and tiny dimensions, made of random numbers in memory.

For measurements of what does not depend on the dimensions: how many operations a step has, and how long
building it takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from ds4mlx.arrays import rebuilt
from ds4mlx.experts import RawExperts, expand
from ds4mlx.linear import FloatMatrix, HalfMatrix, PackedMatrix
from ds4mlx.model import Model
from ds4mlx.operations import make_operations
from ds4mlx.random_weights import RandomWeights
from ds4mlx.weights import HyperConnection
from shared.gguf.types import TensorType
from shared.model.known_shapes import FLASH

if TYPE_CHECKING:
    from ds4mlx.kernels.kernel import Maker

SHAPE = replace(
    FLASH,
    variant="test",
    embedding_width=256,
    vocabulary_size=512,
    head_count=4,
    head_dim=128,
    query_rank=64,
    output_rank=32,
    output_groups=2,
    expert_count=8,
    expert_width=256,
    index_heads=4,
    index_top_k=16,
)


def flash_graph(*, raw: bool, kernels: bool = False) -> Model:
    """The model, with its weights evaluated: with `raw` as a GPU holds those of a file, else all as float32,
    as the CPU holds a small model's. With `kernels` its graph can be built and traced anywhere, and run where
    there is Metal."""
    maker = cast("Maker", mx.fast.metal_kernel) if kernels else None
    mx.random.seed(1)
    weights = RandomWeights(SHAPE, TensorType.IQ2_XXS, TensorType.Q2_K).draw()
    if not raw:
        weights = rebuilt(weights, _expanded)
    mx.eval(weights.arrays())
    return Model(weights, SHAPE, operations=make_operations(SHAPE, lambda operation: maker, rounds=True))


def _expanded(part: Any) -> Any:
    if isinstance(part, HyperConnection):
        return replace(part, mix=part.mix.astype(mx.float32))
    if isinstance(part, HalfMatrix | PackedMatrix):
        size = part.dimensions
        unit = mx.eye(size.inputs)
        several = mx.broadcast_to(unit, (size.groups, *unit.shape))
        return FloatMatrix(part(unit if size.groups == 1 else several))
    return expand(part) if isinstance(part, RawExperts) else None
