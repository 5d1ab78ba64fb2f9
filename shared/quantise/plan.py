"""What a conversion will do: every tensor with its type, its size and where its numbers come from.

Checks the whole checkpoint against the model's tensor table before a byte is written. Reads no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.gguf.directory import tensor_bytes
from shared.gguf.mapping import shown
from shared.gguf.types import TensorType
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, TensorSpec, tensor_table
from shared.quantise.imatrix import Imatrix, ImatrixError
from shared.quantise.matrix import WEIGHTED_TYPES
from shared.quantise.recipe import Recipe, chosen_types
from shared.quantise.safetensors import Checkpoint, CheckpointError, StoredTensor
from shared.quantise.source_names import source_name
from shared.quantise.stored_floats import FloatMatrix, float_matrix

_INTEGERS = ("I64", "I32")


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to write. `matrices` are its numbers, one for each routed expert where there are any; `table`
    is a routing table instead, whose ids stay below `id_limit`."""

    name: str
    type: TensorType
    dims: tuple[int, ...]
    matrices: tuple[FloatMatrix, ...]
    table: StoredTensor | None = None
    id_limit: int = 0

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.type, self.dims)

    @property
    def dtype(self) -> str:
        """The type in the checkpoint, as it is commonly called."""
        if self.table is not None:
            return self.table.dtype
        return "FP4" if self.matrices[0].is_fp4 else self.matrices[0].stored.dtype

    @property
    def sources(self) -> tuple[StoredTensor, ...]:
        """Everything that the tensor is made from, scales included."""
        if self.table is not None:
            return (self.table,)
        held = [part for matrix in self.matrices for part in (matrix.stored, matrix.scales)]
        return tuple(part for part in held if part is not None)


def make_plan(checkpoint: Checkpoint, shape: ModelShape, recipe: Recipe) -> list[PlannedTensor]:
    """The tensors of the file, in the order in which they are written.

    Raises UsageError for an impossible recipe, CheckpointError when the checkpoint is not of this shape.
    """
    types = chosen_types(recipe, shape)
    problems: list[str] = []
    planned = []
    for spec in tensor_table(shape):
        try:
            tensor = _planned(checkpoint, shape, spec, types[spec.name])
        except CheckpointError as problem:
            problems.append(str(problem))
            continue
        if tensor is not None:
            planned.append(tensor)
    if problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        raise CheckpointError(f"the checkpoint {checkpoint.folder} cannot be converted: {problems[0]}{more}")
    return planned


def check_imatrix(plan: Sequence[PlannedTensor], imatrix: Imatrix) -> list[str]:
    """Names of tensors whose importance the file lacks, for one expert at least. Raises ImatrixError when
    entries have the wrong size, or none is of use."""
    lacking = []
    wanted = [tensor for tensor in plan if len(tensor.dims) == 3 and tensor.type in WEIGHTED_TYPES]
    for tensor in wanted:
        columns, _, experts = tensor.dims
        found = [imatrix.of(tensor.name, expert, columns, experts) for expert in range(experts)]
        if any(entry is None for entry in found):
            lacking.append(tensor.name)
    if wanted and len(lacking) == len(wanted):
        raise ImatrixError(f"{imatrix.path} says nothing about the tensors of this model")
    return lacking


def _planned(
    checkpoint: Checkpoint, shape: ModelShape, spec: TensorSpec, type: TensorType
) -> PlannedTensor | None:
    experts = spec.dims[2] if spec.types == EXPERT_TYPES else 1
    stored = [_find(checkpoint, source_name(spec.name, expert)) for expert in range(experts)]
    if stored[0] is None and spec.optional:
        return None
    found = []
    for expert, entry in enumerate(stored):
        if entry is None:
            raise CheckpointError(f"tensor {shown(source_name(spec.name, expert))} is missing")
        found.append(entry)
    if type is TensorType.I32:
        return _routing_table(spec, found[0], shape)
    matrices = tuple(float_matrix(checkpoint, entry) for entry in found)
    for matrix in matrices:
        _check_size(spec, matrix)
        if type is TensorType.MXFP4 and not matrix.is_fp4:
            raise CheckpointError(
                f"tensor {shown(matrix.stored.name)} is {matrix.stored.dtype}: only FP4 can become MXFP4"
            )
    return PlannedTensor(spec.name, type, spec.dims, matrices)


def _find(checkpoint: Checkpoint, name: str) -> StoredTensor | None:
    """Matrices of a module are called `weight` there, single parameters are not."""
    return checkpoint.tensors.get(f"{name}.weight") or checkpoint.tensors.get(name)


def _routing_table(spec: TensorSpec, stored: StoredTensor, shape: ModelShape) -> PlannedTensor:
    expected = tuple(reversed(spec.dims))
    if stored.dtype not in _INTEGERS or stored.shape != expected:
        raise CheckpointError(
            f"tensor {shown(stored.name)} is {stored.dtype} {list(stored.shape)}, "
            f"expected I64 {list(expected)}"
        )
    return PlannedTensor(spec.name, TensorType.I32, spec.dims, (), stored, shape.expert_count)


def _check_size(spec: TensorSpec, matrix: FloatMatrix) -> None:
    columns, rows = spec.dims[0], spec.dims[1] if len(spec.dims) > 1 else 1
    if (matrix.rows, matrix.columns) != (rows, columns):
        got, want = [matrix.rows, matrix.columns], [rows, columns]
        if rows == 1:
            got, want = list(matrix.stored.shape), [columns]
        raise CheckpointError(f"tensor {shown(matrix.stored.name)} has the size {got}, expected {want}")
