"""A model whose routed experts are watched: each step's operands are shown on the host. Normal models have
nothing of it. Must not know: why anyone watches, sessions.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import mlx.core as mx
import numpy as np

from ds4mlx.experts import ExpertStore
from ds4mlx.linear import Matrix
from ds4mlx.model import Model
from shared.expert_watch import ExpertWatch


def watched(model: Model, watch: ExpertWatch) -> Model:
    """The same model with the same weights, which waits in each layer until `watch` has seen it. Hidden rows
    are computed once more to be shown: in the types in which many tokens go through the experts."""
    layers = {id(layer.experts): number for number, layer in enumerate(model.weights.layers)}
    operations = model.operations

    def run_experts(
        x: mx.array,
        store: ExpertStore,
        chosen: mx.array,
        shares: mx.array,
        hidden: mx.array,
        shared_down: Matrix,
    ) -> mx.array:
        rows = operations.expert_rows(store, x, chosen, shares)
        mx.eval(x, chosen, rows)
        watch(layers[id(store)], np.array(x), np.array(chosen), np.array(rows))
        result: mx.array = operations.run_experts(x, store, chosen, shares, hidden, shared_down)
        return result

    other = copy(model)
    other.operations = replace(operations, run_experts=run_experts)
    return other
