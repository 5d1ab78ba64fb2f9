"""The operations of a model that multiply with its quantised matrices, in one of two modes: float32
activations, or activations rounded to 8 bits.

Must not know: devices, weights, sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ds4cuda.kernels import (
    group_experts,
    project,
    project8,
    project_swiglu,
    quantise,
    run_experts,
    run_experts8,
    sort_pairs,
    tile_experts,
    tile_project,
    tile_project_f16,
    tile_project_swiglu,
)
from ds4cuda.kernels.kernel import Modules
from ds4cuda.kernels.quantise import Quantise
from ds4cuda.kernels.run_experts8 import Experts8
from ds4cuda.kernels.tile_experts import TileExperts
from shared.gguf.types import TensorType
from shared.model.shape import ModelShape

Call = Callable[..., None]


@dataclass(frozen=True, slots=True)
class FloatOperations:
    """Each as its package's `build` says. `project` is one for each storage of a matrix; experts are of the
    types of gate and up, and of down, and are compiled when they are first asked for."""

    project: dict[str, Call]
    project_swiglu: Call
    run_experts: Callable[[TensorType, TensorType], Call]
    group_experts: Callable[[TensorType, TensorType], Call]


@dataclass(frozen=True, slots=True)
class CodeOperations:
    """The same for 8-bit activations; `project_f16` takes float32 ones as before. Those in tiles are for many
    tokens."""

    quantise: Quantise
    project: Call
    project_f16: Call
    run_experts: Callable[[TensorType, TensorType], Experts8]
    tile_project: Call
    tile_project_f16: Call
    tile_project_swiglu: Call
    sort_pairs: Call
    tile_experts: Callable[[TensorType, TensorType], TileExperts]


def make_float_operations(modules: Modules, shape: ModelShape) -> FloatOperations:
    sizes = _expert_sizes(shape)

    @cache
    def experts(in_type: TensorType, down_type: TensorType) -> Call:
        return run_experts.build(modules, in_type=in_type, down_type=down_type, **sizes)

    @cache
    def grouped(in_type: TensorType, down_type: TensorType) -> Call:
        types = {"in_type": in_type, "down_type": down_type}
        return group_experts.build(modules, experts=shape.expert_count, **types, **sizes)

    return FloatOperations(
        project={storage: project.build(modules, storage=storage) for storage in project.WEIGHT_TYPES},
        project_swiglu=project_swiglu.build(modules, storage="q8_0", clamp=shape.swiglu_clamp),
        run_experts=experts,
        group_experts=grouped,
    )


def make_code_operations(modules: Modules, shape: ModelShape) -> CodeOperations:
    """Experts raise ValueError for widths that are not whole blocks of codes."""
    sizes = _expert_sizes(shape)

    @cache
    def experts(in_type: TensorType, down_type: TensorType) -> Experts8:
        return run_experts8.build(modules, in_type=in_type, down_type=down_type, **sizes)

    @cache
    def in_tiles(in_type: TensorType, down_type: TensorType) -> TileExperts:
        return tile_experts.build(modules, in_type=in_type, down_type=down_type, **sizes)

    return CodeOperations(
        quantise=quantise.build(modules),
        project=project8.build(modules),
        project_f16=project.build(modules, storage="f16"),
        run_experts=experts,
        tile_project=tile_project.build(modules),
        tile_project_f16=tile_project_f16.build(modules),
        tile_project_swiglu=tile_project_swiglu.build(modules, clamp=shape.swiglu_clamp),
        sort_pairs=sort_pairs.build(modules),
        tile_experts=in_tiles,
    )


def _expert_sizes(shape: ModelShape) -> dict[str, Any]:
    return {
        "width": shape.embedding_width,
        "expert_width": shape.expert_width,
        "used": shape.experts_used,
        "clamp": shape.swiglu_clamp,
    }
