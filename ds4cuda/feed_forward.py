"""The feed-forward half of a layer: the router, the routed experts and the shared one. Spec: model §4.8.

Everything is computed in place in scratch memory. Must not know: caches, how a block's input is made and its
output joins the streams, sessions.
"""

from __future__ import annotations

from ds4cuda.arrays import StepArrays
from ds4cuda.operations import Operations
from ds4cuda.products import Products
from ds4cuda.scratch import Scratch
from ds4cuda.step import Step
from ds4cuda.weights import LayerWeights
from shared.model.shape import ModelShape


class FeedForward:
    def __init__(
        self,
        operations: Operations,
        products: Products,
        scratch: Scratch,
        arrays: StepArrays,
        shape: ModelShape,
    ) -> None:
        self._operations = operations
        self._products = products
        self._scratch = scratch
        self._arrays = arrays
        self._shape = shape

    def __call__(self, weights: LayerWeights, step: Step) -> None:
        """The block's output from its input x."""
        self.route(weights, step)
        self.experts(weights, step)

    def route(self, weights: LayerWeights, step: Step) -> None:
        """Experts of each token and their weights."""
        arrays = self._arrays
        logits = self._scratch("router_logits", step.count, self._shape.expert_count)
        self._products.project(weights.router, arrays.x(step), logits)
        table, tokens = weights.expert_table, arrays.tokens(step)
        self._operations.route[table is not None](
            logits, weights.router_bias, tokens if table is None else table, tokens, *arrays.routed(step)
        )

    def experts(self, weights: LayerWeights, step: Step) -> None:
        """The sum of the routed experts' outputs and the shared one's."""
        self._products.experts(weights, step)
