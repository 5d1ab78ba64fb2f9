"""The attention half of a layer, read top to bottom like the paper. Spec: model §4.5 to §4.7.

Everything is computed in place, in scratch memory and in the state at the slots of the step's positions.
Must not know: how a block's input is made and its output joins the streams, sessions.
"""

from __future__ import annotations

from typing import Any

from ds4cuda.arrays import StepArrays
from ds4cuda.operations import Operations
from ds4cuda.products import Products
from ds4cuda.scratch import Scratch
from ds4cuda.state import State
from ds4cuda.step import Step
from ds4cuda.weights import LayerWeights
from shared.model.shape import ModelShape

# Tokens from which on heads attend, and rows are scored, on tensor cores.
_TILES_FROM = 8


class Attention:
    """`frequencies` float64 [2, pairs] are those of window-only layers and of compressed ones."""

    def __init__(
        self,
        operations: Operations,
        products: Products,
        scratch: Scratch,
        arrays: StepArrays,
        shape: ModelShape,
        frequencies: Any,
    ) -> None:
        self._operations = operations
        self._project = products.project
        self._scratch = scratch
        self._arrays = arrays
        self._shape = shape
        self._frequencies = frequencies

    def __call__(self, index: int, weights: LayerWeights, state: State, step: Step) -> None:
        """The block's output from its input x, of the layer `index`."""
        self.inputs(index, weights, state, step)
        self.compress(index, weights, state, step)
        self.index_select(index, state, step)
        self.attend(index, weights, state, step)
        self.output(weights, step)

    def inputs(self, index: int, weights: LayerWeights, state: State, step: Step) -> None:
        """Queries, each token's one row, key and value of all heads, in the ring, and its frontier row."""
        shape, scratch, arrays, count = self._shape, self._scratch, self._arrays, step.count
        compressor, ratio = weights.compressor, weights.ratio
        low = scratch("low", count, shape.query_rank + shape.head_dim)
        self._project(weights.query_key_value_down, arrays.x(step), low)
        projected = frontier = ring = positional = arrays.nothing
        if compressor is not None:
            projected, frontier = arrays.projected(ratio, step), arrays.frontier(ratio, step)
            ring, positional = state.frontier(index), compressor.positional
            self._project(compressor.project, arrays.x(step), projected)
        latent = scratch("latent", count, shape.query_rank)
        self._operations.attention_rows[ratio](
            low,
            projected,
            weights.query_norm,
            weights.key_value_norm,
            positional,
            arrays.rotations(ratio),
            arrays.position,
            latent,
            state.raw[index],
            frontier,
            ring,
        )
        self._project(weights.query_up, latent, arrays.queries(step))
        if ratio == 4 and step.chooses and compressor is not None and compressor.index_query is not None:
            self._project(compressor.index_query, latent, arrays.index_queries(step))

    def compress(self, index: int, weights: LayerWeights, state: State, step: Step) -> None:
        """Append the compressed rows of windows that this step completes, before it attends."""
        compressor, rows, arrays = weights.compressor, state.compressed[index], self._arrays
        if compressor is None or rows is None:
            return
        self._operations.compress[weights.ratio](
            arrays.frontier(weights.ratio, step),
            state.frontier(index),
            compressor.norm,
            compressor.index_norm,
            self._frequencies[1],
            arrays.position,
            rows.attention,
            arrays.nothing if rows.index is None else rows.index,
        )

    def index_select(self, index: int, state: State, step: Step) -> None:
        """Numbers of the compressed rows that each token may see, where not all are."""
        rows, arrays = state.compressed[index], self._arrays
        if not step.chooses or rows is None or rows.index is None:
            return
        operations, queries = self._operations, arrays.index_queries(step)
        score = operations.tile_index_scores if step.count >= _TILES_FROM else operations.index_scores
        operations.index_queries(queries, arrays.rotations(4))
        for first, end in step.score_blocks():
            scores = self._scratch("scores", end - first, step.compressed_rows(4))
            projected = arrays.projected(4, step)
            score(queries, projected, rows.index, arrays.position, scores, first=first)
            operations.top_k(scores, arrays.position, arrays.chosen_rows(step), first=first)

    def attend(self, index: int, weights: LayerWeights, state: State, step: Step) -> None:
        """Each query over its window's raw rows and the compressed rows, turned back at its position. The
        result takes the place of the queries."""
        shape, scratch, arrays = self._shape, self._scratch, self._arrays
        ratio, compressed = weights.ratio, state.compressed[index]
        chooses = ratio == 4 and step.chooses
        operations = self._operations
        attend = operations.tile_attend if step.count >= _TILES_FROM else operations.attend
        attend[ratio](
            arrays.queries(step),
            state.raw[index],
            state.raw[index] if compressed is None else compressed.attention,
            arrays.chosen_rows(step) if chooses else arrays.position,
            arrays.rotations(ratio),
            arrays.position,
            weights.sinks,
            scratch("partial", arrays.attending, shape.head_count * shape.head_dim),
            scratch("maxima", arrays.attending, shape.head_count, 2),
            arrays.queries(step),
            rows=step.attended_rows(ratio),
            chooses=chooses,
        )

    def output(self, weights: LayerWeights, step: Step) -> None:
        """Down group by group, and up."""
        groups = self._shape.output_groups
        low = self._scratch("group_outputs", step.count, groups * self._shape.output_rank)
        self._project(weights.output_down, self._arrays.queries(step), low, groups)
        self._project(weights.output_up, low, self._arrays.output(step))
