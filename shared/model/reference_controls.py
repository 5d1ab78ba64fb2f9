"""The reference without its far memory, as a control: what it then still recalls, it did not need it for.

Spec: model §4.6 and §4.7, of which each control leaves out one part.
"""

from __future__ import annotations

import numpy as np

from shared.abilities.controls import Control
from shared.model.reference import Array, Mask, Reference
from shared.model.reference_math import largest_first
from shared.model.reference_state import LayerStep, ReferenceState


class ControlledReference(Reference):
    """A reference with the weights and settings of another, under a control. Lots depend on nothing but the
    layer and the position: neither on the steps of prefill nor on what was asked before."""

    def __init__(self, model: Reference, control: Control) -> None:
        vars(self).update(vars(model))
        self._control = control
        self._start = 0

    def attention_half(self, layer: int, streams: Array, state: ReferenceState) -> tuple[Array, LayerStep]:
        self._start = state.position
        return super().attention_half(layer, streams, state)

    def index_select(
        self,
        layer: int,
        hidden: Array,
        query_latent: Array,
        index_rows: Array,
        visible: Mask,
        rope: tuple[Array, Array],
    ) -> Mask:
        top_k = self.shape.index_top_k
        if self._control != "random-indexer" or len(index_rows) <= top_k:
            return super().index_select(layer, hidden, query_latent, index_rows, visible, rope)
        # A longer draw begins like a shorter one, so rows that a query cannot see yet change nothing for it.
        lots = [
            np.random.default_rng((layer, self._start + query)).random(len(index_rows), np.float32)
            for query in range(len(hidden))
        ]
        best = largest_first(np.where(visible, np.stack(lots), np.float32(-np.inf)), top_k)
        selected = np.zeros_like(visible)
        np.put_along_axis(selected, best, True, axis=1)
        return selected & visible

    def attend(self, layer: int, queries: Array, raw: Array, compressed: Array, visible: Mask) -> Array:
        if self._control == "masked-compression":
            visible = np.zeros_like(visible)
        return super().attend(layer, queries, raw, compressed, visible)
