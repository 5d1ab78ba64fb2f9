"""Products of a step's activations with quantised matrices, in the engine's mode: activations are float32, or
rounded to 8 bits before each such matrix. Binary16 matrices take float32 ones in both. Spec: model §3.1.

Must not know: the order of the forward pass, caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ds4cuda.arrays import StepArrays
from ds4cuda.kernels import sort_pairs
from ds4cuda.kernels.group_experts import most_groups
from ds4cuda.kernels.quantise import DenseCodes, ExpertCodes
from ds4cuda.kernels.tile_experts import GROUP
from ds4cuda.product_operations import CodeOperations, FloatOperations
from ds4cuda.scratch import Scratch
from ds4cuda.step import Step
from ds4cuda.weights import LayerWeights, Matrix, Weights
from shared.model.shape import ModelShape

# Pairs of token and slot for each expert from which on it pays to group them by expert.
_GROUPED_FROM = 2
# Tokens from which on tensor cores multiply them with a matrix: a tile has room for many.
_TILES_FROM = 32


class Products(Protocol):
    def project(self, matrix: Matrix, x: Any, y: Any, groups: int = 1) -> None:
        """x float32 [n, groups * inputs] -> y float32 [n, outputs]; of several groups each has outputs /
        groups rows, which multiply its part of x."""

    def experts(self, weights: LayerWeights, step: Step) -> None:
        """The block's output: the sum of the routed experts' outputs and the shared one's."""


class FloatProducts:
    """Raises ValueError for dimensions that kernels are not written for, as `CodeProducts` does."""

    def __init__(
        self,
        operations: FloatOperations,
        scratch: Scratch,
        arrays: StepArrays,
        shape: ModelShape,
        weights: Weights,
    ) -> None:
        self._operations = operations
        self._scratch = scratch
        self._arrays = arrays
        self._shape = shape
        self._magnitudes = weights.magnitudes
        # What a layer compiles on first use would be too late in a captured step.
        for types in _expert_types(weights.layers):
            operations.run_experts(*types)
            operations.group_experts(*types)

    def project(self, matrix: Matrix, x: Any, y: Any, groups: int = 1) -> None:
        self._operations.project[matrix.storage](matrix, x, y, groups)

    def experts(self, weights: LayerWeights, step: Step) -> None:
        shape, arrays, experts = self._shape, self._arrays, weights.experts
        x, output, (hidden, shared_hidden) = arrays.x(step), arrays.output(step), arrays.hidden(step)
        inputs = (experts, self._magnitudes, x, *arrays.routed(step), hidden)
        types, pairs = (experts.in_type, experts.down_type), hidden.shape[0]
        self._operations.project_swiglu(weights.shared_gate_up, x, shared_hidden)
        if pairs < _GROUPED_FROM * shape.expert_count:
            self._operations.run_experts(*types)(*inputs, weights.shared_down, shared_hidden, output)
            return
        self.project(weights.shared_down, shared_hidden, output)
        self._operations.group_experts(*types)(
            *inputs,
            self._scratch("expert_outputs", pairs, shape.embedding_width),
            self._scratch("pair_order", pairs),
            self._scratch("pair_groups", 3, most_groups(pairs, shape.expert_count)),
            output,
        )


class CodeProducts:
    def __init__(
        self,
        operations: CodeOperations,
        scratch: Scratch,
        arrays: StepArrays,
        shape: ModelShape,
        weights: Weights,
    ) -> None:
        self._operations = operations
        self._scratch = scratch
        self._arrays = arrays
        self._shape = shape
        self._magnitudes = weights.magnitudes
        for types in _expert_types(weights.layers):
            operations.run_experts(*types)
            operations.tile_experts(*types)

    def project(self, matrix: Matrix, x: Any, y: Any, groups: int = 1) -> None:
        operations, of_many = self._operations, len(x) >= _TILES_FROM
        if matrix.storage == "f16":
            if of_many and groups == 1:
                operations.tile_project_f16(matrix, x, y)
            else:
                operations.project_f16(matrix, x, y, groups)
            return
        codes = self._arrays.dense_codes(*x.shape)
        operations.quantise.dense(x, codes)
        project = operations.tile_project if of_many else operations.project
        project(matrix, codes, y, groups)

    def experts(self, weights: LayerWeights, step: Step) -> None:
        operations, arrays = self._operations, self._arrays
        x, (hidden, shared_hidden) = arrays.x(step), arrays.hidden(step)
        dense, codes = arrays.dense_codes(*x.shape), arrays.expert_codes(*x.shape)
        operations.quantise.both(x, dense, codes)
        if hidden.shape[0] < _GROUPED_FROM * self._shape.expert_count:
            self._run_experts(weights, step, dense, codes)
            return
        operations.tile_project_swiglu(weights.shared_gate_up, dense, shared_hidden)
        self._tile_experts(weights, step, codes)

    def _run_experts(self, weights: LayerWeights, step: Step, dense: DenseCodes, x: ExpertCodes) -> None:
        """Pair by pair, the shared expert being one more."""
        operations, arrays, experts = self._operations, self._arrays, weights.experts
        (chosen, shares), (hidden, shared_hidden) = arrays.routed(step), arrays.hidden(step)
        run = operations.run_experts(experts.in_type, experts.down_type)
        shared = (weights.shared_gate_up, dense, shared_hidden)
        run.gate_up(experts, self._magnitudes, x, chosen, shares, hidden, *shared)
        dense, codes = arrays.dense_codes(*shared_hidden.shape), arrays.expert_codes(*hidden.shape)
        operations.quantise.hidden(hidden, codes, shared_hidden, dense)
        run.down(experts, self._magnitudes, chosen, codes, weights.shared_down, dense, arrays.output(step))

    def _tile_experts(self, weights: LayerWeights, step: Step, x: ExpertCodes) -> None:
        """Expert by expert; the shared one's output is there before."""
        operations, arrays, experts = self._operations, self._arrays, weights.experts
        (chosen, shares), (hidden, shared_hidden) = arrays.routed(step), arrays.hidden(step)
        output, pairs, count = arrays.output(step), hidden.shape[0], self._shape.expert_count
        self.project(weights.shared_down, shared_hidden, output)
        order = self._scratch("pair_order", pairs)
        groups = self._scratch("pair_groups", 3, sort_pairs.most_groups(pairs, count, GROUP))
        operations.sort_pairs(chosen, self._scratch("pair_counts", count), order, groups, group=GROUP)
        tiles = operations.tile_experts(experts.in_type, experts.down_type)
        tiles.gate_up(experts, self._magnitudes, x, order, groups, shares, hidden)
        codes = arrays.expert_codes(*hidden.shape)
        operations.quantise.expert(hidden, codes)
        outputs = self._scratch("expert_outputs", pairs, self._shape.embedding_width)
        tiles.down(experts, self._magnitudes, codes, order, groups, outputs, output)


def _expert_types(layers: Iterable[LayerWeights]) -> set[tuple[Any, Any]]:
    return {(layer.experts.in_type, layer.experts.down_type) for layer in layers}
