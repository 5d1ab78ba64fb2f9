"""The forward pass, read top to bottom like the paper, in the order of STAGES.

Takes a step of one or many tokens through a session's buffers; the same code decodes and prefills.
Everything is computed in place: in scratch memory, and in the state at the slots of the step's positions.
Nothing here waits for the device, allocates, or depends on a token's value, so a step can be captured as a
graph. Spec: model §4. Must not know: sessions, files, how tokens are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ds4cuda.device import Device
from ds4cuda.kernels.attend import MOST_SPLITS
from ds4cuda.kernels.group_experts import most_groups
from ds4cuda.kernels.hyper_mix import slices
from ds4cuda.operations import compressor_columns, make_operations
from ds4cuda.scratch import Scratch
from ds4cuda.state import State
from ds4cuda.step import Step
from ds4cuda.weights import HyperConnection, LayerWeights, Matrix, Weights
from shared.model.frontier import frontier_widths
from shared.model.rope import rotary_frequencies
from shared.model.shape import ModelShape

Activation = Literal["kv", "float"]

# The stages of the paper, and the method that computes each: what reads the same input is computed together.
STAGES = {
    "embed": "embed",
    "hyper_connection_pre": "hyper_connection_pre",
    "attention_queries": "attention_inputs",
    "key_value_row": "attention_inputs",
    "compress": "compress",
    "index_select": "index_select",
    "attend": "attend",
    "attention_output": "attention_output",
    "hyper_connection_post": "hyper_connection_post",
    "route": "route",
    "experts": "experts",
    "shared_expert": "experts",
    "output_head": "output_head",
}

# Pairs of token and slot for each expert from which on it pays to group them by expert.
_GROUPED_FROM = 2
# Called after each layer with its number; may wait for the device, and may raise to stop.
LayerDone = Callable[[int], None]


class Model:
    """`activation` "kv" rounds cached rows and indexer vectors as the model does, "float" rounds nothing.

    `longest_step` tokens are the most of one step. A step of one token skips the indexer's choice up to
    `dense_index_rows` compressed rows, as GPU builds of the C engine do up to 1,024; 0 always chooses. Raises
    ValueError for dimensions that kernels are not written for.
    """

    def __init__(
        self,
        device: Device,
        weights: Weights,
        shape: ModelShape,
        activation: Activation = "kv",
        *,
        longest_step: int,
        dense_index_rows: int = 0,
    ) -> None:
        self.device = device
        self.weights = weights
        self.shape = shape
        self.rounds = activation == "kv"
        self.operations = make_operations(device, shape, rounds=self.rounds)
        # What a layer compiles on first use would be too late in a captured step.
        for layer in weights.layers:
            self.operations.run_experts(layer.experts.in_type, layer.experts.down_type)
            self.operations.group_experts(layer.experts.in_type, layer.experts.down_type)
        self.scratch = Scratch(device, shape, longest_step)
        kinds = [rotary_frequencies(shape, ratio) for ratio in (0, 4)]
        self._frequencies = device.upload(np.stack(kinds))
        self._dense_index_rows = dense_index_rows
        self._nothing = device.zeros((1,), np.float32)  # stands for arrays that a layer does not have

    def open_state(self, context: int) -> State:
        return State(self.device, self.shape, context, self.scratch.tokens, rounds=self.rounds)

    def step(self, start: int, count: int) -> Step:
        return Step.at(self.shape, start, count, self._dense_index_rows)

    def begin(self, start: int, count: int, token: int = -1, chosen: Any = None) -> None:
        """Tell the device where a step stands, before `forward`. Its tokens are in scratch memory; a single
        one may be given here, or with `chosen` int32 [1] the place that it will stand at."""
        tokens = self.scratch("tokens", self.scratch.tokens)
        self.operations.begin_step(
            self._frequencies,
            self.scratch("rotations", 2, self.scratch.tokens, self.shape.rotary_dim // 2, 2),
            self._position,
            tokens,
            tokens if chosen is None else chosen,
            start=start,
            token=token,
            count=count,
        )

    def forward(self, state: State, step: Step, layer_done: LayerDone | None = None) -> Any:
        """Evaluate the step's tokens: the logits float32 [vocabulary] after the last one, in scratch memory.

        The state's buffers hold the step's rows then, but it moves on only when its position is set.
        """
        self.embed(step)
        for index in range(self.shape.layer_count):
            self.layer(index, state, step)
            if layer_done is not None:
                layer_done(index)
        return self.output_head(step)

    def layer(self, index: int, state: State, step: Step) -> None:
        weights = self.weights.layers[index]
        self.hyper_connection_pre(weights.attention_mix, weights.attention_norm, step, joins=index > 0)
        self.attention_inputs(index, state, step)
        self.compress(index, state, step)
        self.index_select(index, state, step)
        self.attend(index, state, step)
        self.attention_output(weights, step)
        self.hyper_connection_post(step)
        self.hyper_connection_pre(weights.feed_forward_mix, weights.feed_forward_norm, step)
        self.route(weights, step)
        self.experts(weights, step)
        self.hyper_connection_post(step)

    def embed(self, step: Step) -> None:
        """Each stream begins as the token's embedding."""
        self.operations.embed(self.scratch("tokens", step.count), self.weights.embedding, self._streams(step))

    def hyper_connection_pre(
        self, mix: HyperConnection, norm: Any, step: Step, *, joins: bool = True
    ) -> None:
        """The normed input of a block, after the output of the block before has joined the streams."""
        operations = self.operations
        partial = self._mixed(
            operations.hyper_join if joins else operations.hyper_mix, mix, self._streams(step)
        )
        arrays = (mix.scale, mix.base, norm, self._x(step), self._joint(step))
        operations.hyper_collapse(self._streams(step), partial, *arrays)

    def attention_inputs(self, index: int, state: State, step: Step) -> None:
        """Queries, each token's one row, key and value of all heads, in the ring, and its frontier row."""
        weights, shape, scratch, count = self.weights.layers[index], self.shape, self.scratch, step.count
        compressor, ratio = weights.compressor, weights.ratio
        low = scratch("low", count, shape.query_rank + shape.head_dim)
        self._project(weights.query_key_value_down, self._x(step), low)
        projected = frontier = ring = positional = self._nothing
        if compressor is not None:
            projected, frontier = self._projected(ratio, step), self._frontier(ratio, step)
            ring, positional = state.frontier(index), compressor.positional
            self._project(compressor.project, self._x(step), projected)
        latent = scratch("latent", count, shape.query_rank)
        self.operations.attention_rows[ratio](
            low,
            projected,
            weights.query_norm,
            weights.key_value_norm,
            positional,
            self._rotations(ratio),
            self._position,
            latent,
            state.raw[index],
            frontier,
            ring,
        )
        self._project(weights.query_up, latent, self._queries(step))
        if ratio == 4 and step.chooses and compressor is not None and compressor.index_query is not None:
            self._project(compressor.index_query, latent, self._index_queries(step))

    def compress(self, index: int, state: State, step: Step) -> None:
        """Append the compressed rows of windows that this step completes, before it attends."""
        compressor, rows = self.weights.layers[index].compressor, state.compressed[index]
        if compressor is None or rows is None:
            return
        ratio = self.shape.compress_ratios[index]
        self.operations.compress[ratio](
            self._frontier(ratio, step),
            state.frontier(index),
            compressor.norm,
            compressor.index_norm,
            self._frequencies[1],
            self._position,
            rows.attention,
            self._nothing if rows.index is None else rows.index,
        )

    def index_select(self, index: int, state: State, step: Step) -> None:
        """Numbers of the compressed rows that each token may see, where not all are."""
        rows = state.compressed[index]
        if not step.chooses or rows is None or rows.index is None:
            return
        operations, queries = self.operations, self._index_queries(step)
        operations.index_queries(queries, self._rotations(4))
        for first, end in step.score_blocks():
            scores = self.scratch("scores", end - first, step.compressed_rows(4))
            projected = self._projected(4, step)
            operations.index_scores(queries, projected, rows.index, self._position, scores, first=first)
            operations.top_k(scores, self._position, self._chosen_rows(step), first=first)

    def attend(self, index: int, state: State, step: Step) -> None:
        """Each query over its window's raw rows and the compressed rows, turned back at its position. The
        result takes the place of the queries."""
        shape, scratch = self.shape, self.scratch
        ratio, compressed = shape.compress_ratios[index], state.compressed[index]
        chooses, attending = ratio == 4 and step.chooses, self._attending
        self.operations.attend[ratio](
            self._queries(step),
            state.raw[index],
            state.raw[index] if compressed is None else compressed.attention,
            self._chosen_rows(step) if chooses else scratch("position", 1),
            self._rotations(ratio),
            self._position,
            self.weights.layers[index].sinks,
            scratch("partial", attending, shape.head_count * shape.head_dim),
            scratch("maxima", attending, shape.head_count, 2),
            self._queries(step),
            rows=step.attended_rows(ratio),
            chooses=chooses,
        )

    def attention_output(self, weights: LayerWeights, step: Step) -> None:
        """Down group by group, and up."""
        groups = self.shape.output_groups
        low = self.scratch("group_outputs", step.count, groups * self.shape.output_rank)
        self.operations.project[weights.output_down.storage](
            weights.output_down, self._queries(step), low, groups
        )
        self._project(weights.output_up, low, self._output(step))

    def hyper_connection_post(self, step: Step) -> None:
        """A block's output joins the streams at the beginning of the next block, which then reads them only
        once: nothing is launched here."""

    def route(self, weights: LayerWeights, step: Step) -> None:
        """Experts of each token and their weights."""
        logits = self.scratch("router_logits", step.count, self.shape.expert_count)
        self._project(weights.router, self._x(step), logits)
        table = weights.expert_table
        tokens = self.scratch("tokens", step.count)
        self.operations.route[table is not None](
            logits, weights.router_bias, tokens if table is None else table, tokens, *self._routed(step)
        )

    def experts(self, weights: LayerWeights, step: Step) -> None:
        """The sum of the routed experts' outputs and the shared one's."""
        shape, experts = self.shape, weights.experts
        shared_hidden = self.scratch("shared_hidden", step.count, shape.expert_width)
        pairs = step.count * shape.experts_used
        hidden = self.scratch("hidden", pairs, shape.expert_width)
        inputs = (experts, self.weights.magnitudes, self._x(step), *self._routed(step), hidden)
        types, shared_down, output = (
            (experts.in_type, experts.down_type),
            weights.shared_down,
            self._output(step),
        )
        self.operations.project_swiglu(weights.shared_gate_up, self._x(step), shared_hidden)
        if pairs < _GROUPED_FROM * shape.expert_count:
            self.operations.run_experts(*types)(*inputs, shared_down, shared_hidden, output)
            return
        self._project(shared_down, shared_hidden, output)
        self.operations.group_experts(*types)(
            *inputs,
            self.scratch("expert_outputs", pairs, shape.embedding_width),
            self.scratch("pair_order", pairs),
            self.scratch("pair_groups", 3, most_groups(pairs, shape.expert_count)),
            output,
        )

    def output_head(self, step: Step) -> Any:
        """Logits [vocabulary] after the step's last token."""
        return self.logits_of(step, step.count - 1)

    def logits_of(self, step: Step, token: int) -> Any:
        """Logits after one of the step's tokens; each can be asked for once, since its output joins then."""
        weights, one = self.weights, slice(token, token + 1)
        streams, x = self._streams(step)[one], self._x(step)[one]
        mix = weights.output_mix
        partial = self._mixed(
            self.operations.head_join, mix, streams, self._output(step)[one], self._joint(step)[one]
        )
        self.operations.head_collapse(
            streams, partial, mix.scale, mix.base, weights.output_norm, x, self._nothing
        )
        logits = self.scratch("logits", 1, self.shape.vocabulary_size)
        self._project(weights.output, x, logits)
        return logits[0]

    def _mixed(self, mixing: Any, mix: HyperConnection, streams: Any, *joining: Any) -> Any:
        count, mixes = streams.shape[0], mix.mix.shape[0]
        partial = self.scratch("mix", count, slices(self.shape.embedding_width), mixes + 1)
        output, joint = joining or (
            self.scratch("output", count, self.shape.embedding_width),
            self.scratch("joint", count, self.shape.streams * (1 + self.shape.streams)),
        )
        mixing(streams, output, joint, mix.mix, partial)
        return partial

    def _project(self, matrix: Matrix, x: Any, y: Any) -> None:
        self.operations.project[matrix.storage](matrix, x, y)

    @property
    def _position(self) -> Any:
        return self.scratch("position", 1)

    @property
    def _attending(self) -> int:
        """Slots of partial results of attention."""
        return max(self.scratch.tokens, MOST_SPLITS)

    def _rotations(self, ratio: int) -> Any:
        """Of the step's tokens: all compressed layers turn alike."""
        pairs = self.shape.rotary_dim // 2
        return self.scratch("rotations", 2, self.scratch.tokens, pairs, 2)[min(ratio, 1)]

    def _streams(self, step: Step) -> Any:
        return self.scratch("streams", step.count, self.shape.streams, self.shape.embedding_width)

    def _joint(self, step: Step) -> Any:
        return self.scratch("joint", step.count, self.shape.streams * (1 + self.shape.streams))

    def _x(self, step: Step) -> Any:
        return self.scratch("x", step.count, self.shape.embedding_width)

    def _output(self, step: Step) -> Any:
        return self.scratch("output", step.count, self.shape.embedding_width)

    def _queries(self, step: Step) -> Any:
        return self.scratch("queries", step.count, self.shape.head_count * self.shape.head_dim)

    def _index_queries(self, step: Step) -> Any:
        return self.scratch("index_queries", step.count, self.shape.index_heads * self.shape.index_dim)

    def _projected(self, ratio: int, step: Step) -> Any:
        return self.scratch("projected", step.count, compressor_columns(self.shape, ratio))

    def _frontier(self, ratio: int, step: Step) -> Any:
        return self.scratch("frontier", step.count, sum(frontier_widths(self.shape, ratio)))

    def _chosen_rows(self, step: Step) -> Any:
        return self.scratch("chosen_rows", step.count, self.shape.index_top_k)

    def _routed(self, step: Step) -> tuple[Any, Any]:
        shape = (step.count, self.shape.experts_used)
        return self.scratch("experts", *shape), self.scratch("shares", *shape)
