"""Products of a step's activations with quantised matrices, in the engine's mode: activations are float32, or
rounded to 8 bits before each such matrix. Binary16 matrices take float32 ones in both. Spec: model §3.1.

Must not know: the order of the forward pass, caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ds4cuda.arrays import StepArrays
from ds4cuda.kernels.group_experts import most_groups
from ds4cuda.product_operations import CodeOperations, FloatOperations
from ds4cuda.scratch import Scratch
from ds4cuda.step import Step
from ds4cuda.weights import LayerWeights, Matrix, Weights
from shared.model.shape import ModelShape

# Pairs of token and slot for each expert from which on it pays to group them by expert.
_GROUPED_FROM = 2


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
    def __init__(self, operations: CodeOperations, arrays: StepArrays, weights: Weights) -> None:
        self._operations = operations
        self._arrays = arrays
        self._magnitudes = weights.magnitudes
        for types in _expert_types(weights.layers):
            operations.run_experts(*types)

    def project(self, matrix: Matrix, x: Any, y: Any, groups: int = 1) -> None:
        if matrix.storage == "f16":
            self._operations.project_f16(matrix, x, y, groups)
            return
        codes = self._arrays.dense_codes(*x.shape)
        self._operations.quantise.dense(x, codes)
        self._operations.project(matrix, codes, y, groups)

    def experts(self, weights: LayerWeights, step: Step) -> None:
        operations, arrays, experts = self._operations, self._arrays, weights.experts
        x, (hidden, shared_hidden) = arrays.x(step), arrays.hidden(step)
        run, (chosen, shares) = (
            operations.run_experts(experts.in_type, experts.down_type),
            arrays.routed(step),
        )
        dense, codes = arrays.dense_codes(*x.shape), arrays.expert_codes(*x.shape)
        operations.quantise.both(x, dense, codes)
        operations.project_swiglu(weights.shared_gate_up, dense, shared_hidden)
        run.gate_up(experts, self._magnitudes, codes, chosen, shares, hidden)
        dense, codes = arrays.dense_codes(*shared_hidden.shape), arrays.expert_codes(*hidden.shape)
        operations.quantise.dense(shared_hidden, dense)
        operations.quantise.expert(hidden, codes)
        run.down(experts, self._magnitudes, chosen, codes, weights.shared_down, dense, arrays.output(step))


def _expert_types(layers: Iterable[LayerWeights]) -> set[tuple[Any, Any]]:
    return {(layer.experts.in_type, layer.experts.down_type) for layer in layers}
