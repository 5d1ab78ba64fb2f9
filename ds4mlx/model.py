"""The forward pass, read top to bottom like the paper, in the order of STAGES.

Takes a step of one or many tokens through a session's caches; the same code decodes and prefills. What is
computed stands in `operations`, each operation a kernel or plain array operations.
Spec: model §4. Must not know: sessions, files, how tokens are chosen, kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from ds4mlx.arrays import arrays
from ds4mlx.operations import Operations, plain_operations
from ds4mlx.state import State, StepResult
from ds4mlx.steering import OutputEdit
from ds4mlx.step import Step
from ds4mlx.weights import HyperConnection, LayerWeights, Weights
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


@dataclass(frozen=True, slots=True)
class Streams:
    """Residual streams [n, streams, width], and the output [n, width] of the last block with the weights
    `joint` [n, streams * (1 + streams)] by which it will join them; None where it has joined them already.

    The next block's first operation joins the two, so that the streams are read and written only once.
    """

    values: mx.array
    output: mx.array | None = None
    joint: mx.array | None = None

    def last(self) -> Streams:
        """Those of the last token."""
        if self.output is None or self.joint is None:
            return Streams(self.values[-1:])
        return Streams(self.values[-1:], self.output[-1:], self.joint[-1:])

    def arrays(self) -> list[mx.array]:
        return list(arrays(self))


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """What the attention of n tokens starts from: unnormalised queries [n, heads * head dim], the tokens' own
    rows [n, head dim] and frontier rows [n, width], the compressor's projections [n, width + index heads],
    and unrotated index queries [n, index heads * index dim] where the indexer chooses."""

    queries: mx.array
    rows: mx.array
    frontier: mx.array | None
    compressor: mx.array | None
    index_queries: mx.array | None


# Called after each layer with its number, the streams so far and the layer's rows that the step keeps and has
# appended; may evaluate, and may raise to stop.
LayerDone = Callable[[int, Streams, list[mx.array]], None]


class Model:
    """`activation` "kv" rounds cached rows and indexer vectors as the model does, "float" rounds nothing.

    A step of one token skips the indexer's choice up to `dense_index_rows` compressed rows, as GPU builds of
    the C engine do up to 1,024; 0 always chooses. Spec: model §4.7.
    """

    def __init__(
        self,
        weights: Weights,
        shape: ModelShape,
        activation: Activation = "kv",
        dense_index_rows: int = 0,
        operations: Operations | None = None,
    ) -> None:
        self.weights = weights
        self.shape = shape
        self.operations = operations or plain_operations(shape, rounds=activation == "kv")
        self.edit_output = OutputEdit()
        self._dense_index_rows = dense_index_rows
        self._rounds = activation == "kv"

    @property
    def row_dtype(self) -> mx.Dtype:
        """Of stored rows."""
        return mx.float16 if self._rounds else mx.float32

    def open_state(self, context: int) -> State:
        return State(self.shape, context, self.row_dtype, self.operations.stack_rows)

    def forward(self, tokens: mx.array, state: State, layer_done: LayerDone | None = None) -> StepResult:
        """Evaluate `tokens` int32 [n], which follow what `state` holds.

        Appends compressed rows to the caches, where `state` as it stands cannot read them: it moves on only
        when it is handed the result.
        """
        step = Step(self.shape, state.position, tokens.shape[0], state.ring_rows)
        rows: list[mx.array] = []
        frontiers: list[mx.array | None] = []
        streams = self.embed(tokens)
        for index in range(self.shape.layer_count):
            streams, inputs = self.layer(index, state, streams, tokens, step)
            kept = state.kept(index, inputs.rows, inputs.frontier)
            rows.append(kept[0])
            frontiers.append(kept[1])
            if layer_done is not None:
                layer_done(index, streams, list(arrays((kept, state.compressed[index]))))
        logits = self.output_head(streams.last()).squeeze(0)
        return StepResult(step.count, logits, rows, frontiers)

    def layer(
        self, index: int, state: State, streams: Streams, tokens: mx.array, step: Step
    ) -> tuple[Streams, AttentionInputs]:
        """The streams after one layer, and the rows that its state will take over."""
        weights = self.weights.layers[index]
        x, streams = self.hyper_connection_pre(weights.attention_mix, weights.attention_norm, streams)
        inputs = self.attention_inputs(weights, x, step)
        self.compress(index, state, inputs, step)
        chosen = self.index_select(index, state, inputs, step)
        mixed = self.attend(index, state, inputs, chosen, step)
        output = self.edit_output(index, "attn_out", self.attention_output(weights, mixed))
        streams = self.hyper_connection_post(streams, output)
        x, streams = self.hyper_connection_pre(weights.feed_forward_mix, weights.feed_forward_norm, streams)
        chosen_experts, shares, hidden = self.route(weights, x, tokens)
        output = self.experts(weights, x, chosen_experts, shares, hidden)
        return self.hyper_connection_post(streams, self.edit_output(index, "ffn_out", output)), inputs

    def embed(self, tokens: mx.array) -> Streams:
        """Each stream begins as the token's embedding."""
        each = mx.broadcast_to(tokens[:, None], (tokens.shape[0], self.shape.streams))
        return Streams(mx.take(self.weights.embedding, each, axis=0).astype(mx.float32))

    def hyper_connection_pre(
        self, mix: HyperConnection, norm: mx.array, streams: Streams
    ) -> tuple[mx.array, Streams]:
        """The normed input [n, width] of a block, and the streams that the block's output will join."""
        values, partial = self._joined(mix, streams)
        x, joint = self.operations.hyper_collapse(values, partial, mix.scale, mix.base, norm)
        return x, Streams(values, None, joint)

    def attention_inputs(self, weights: LayerWeights, x: mx.array, step: Step) -> AttentionInputs:
        """Queries, and each token's one row, key and value of all heads."""
        operations, compressor, ratio = self.operations, weights.compressor, weights.ratio
        low, projected = operations.project(
            x, weights.query_key_value_down, None if compressor is None else compressor.project
        )
        ranks, rows, frontier = operations.attention_rows[ratio](
            low,
            projected,
            weights.query_norm,
            weights.key_value_norm,
            None if compressor is None else compressor.positional,
            step.rotation(ratio),
            step.numbers(ratio),
        )
        index_query = compressor.index_query if compressor and self._chooses(ratio, step) else None
        queries, index_queries = operations.project(ranks, weights.query_up, index_query)
        return AttentionInputs(queries, rows, frontier, projected, index_queries)

    def compress(self, index: int, state: State, inputs: AttentionInputs, step: Step) -> None:
        """Append the compressed rows of windows that this step completes, before it attends."""
        compressor, compressed = self.weights.layers[index].compressor, state.compressed[index]
        if compressor is None or compressed is None or inputs.frontier is None:
            return
        ratio = self.shape.compress_ratios[index]
        count = step.completed_windows(ratio)
        if not count:
            return
        rows, index_rows = self.operations.compress[ratio](
            state.frontier(index),
            inputs.frontier,
            compressor.norm,
            compressor.index_norm,
            step.window_rotation(ratio),
            step.numbers(ratio),
            windows=count,
        )
        first = step.start // ratio
        compressed.attention[first : first + count] = rows
        if compressed.index is not None:
            compressed.index[first : first + count] = index_rows

    def index_select(self, index: int, state: State, inputs: AttentionInputs, step: Step) -> mx.array | None:
        """Numbers of the compressed rows that each token may see, int32 [n, top k]; None: all are."""
        compressed = state.compressed[index]
        if inputs.index_queries is None or inputs.compressor is None:
            return None
        assert compressed is not None
        queries = self.operations.index_queries(inputs.index_queries, step.rotation(4))
        chosen = []
        for first, end, numbers in step.index_blocks():
            whole = first == 0 and end == step.count
            scores = self.operations.index_scores(
                queries if whole else queries[first:end],
                inputs.compressor if whole else inputs.compressor[first:end],
                compressed.index,
                numbers,
                step.end // 4,
            )
            chosen.append(self.operations.top_k(scores, self.shape.index_top_k))
        return chosen[0] if len(chosen) == 1 else mx.concatenate(chosen, axis=0)

    def attend(
        self, index: int, state: State, inputs: AttentionInputs, chosen: mx.array | None, step: Step
    ) -> mx.array:
        """Each query over its window's raw rows and the compressed rows, and turned back at the query's
        position: [n, heads * head dim]."""
        ratio, compressed = self.shape.compress_ratios[index], state.compressed[index]
        return self.operations.attend[ratio](
            inputs.queries,
            inputs.rows,
            state.ring(index),
            None if compressed is None else compressed.attention,
            chosen,
            self.weights.layers[index].sinks,
            step.rotation(ratio),
            step.numbers(ratio),
            step,
        )

    def attention_output(self, weights: LayerWeights, mixed: mx.array) -> mx.array:
        """Down group by group, and up: [n, width]."""
        project = self.operations.project
        low, _ = project(mixed, weights.output_down, groups=self.shape.output_groups)
        return project(low, weights.output_up)[0]

    def hyper_connection_post(self, streams: Streams, output: mx.array) -> Streams:
        """The streams with a block's output, which joins them at the beginning of the next block."""
        return Streams(streams.values, output, streams.joint)

    def route(
        self, weights: LayerWeights, x: mx.array, tokens: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Experts of each token, int32 [n, used], their weights, float32 [n, used], and the hidden vectors
        [n, expert width] of the shared expert, which reads the same input."""
        hidden, logits = self.operations.project_swiglu(x, weights.shared_gate_up, weights.router)
        chosen, shares = self.operations.route(logits, weights.router_bias, weights.expert_table, tokens)
        return chosen, shares, hidden

    def experts(
        self, weights: LayerWeights, x: mx.array, chosen: mx.array, shares: mx.array, hidden: mx.array
    ) -> mx.array:
        """The sum of the routed experts' outputs and the shared one's: [n, width]."""
        return self.operations.run_experts(x, weights.experts, chosen, shares, hidden, weights.shared_down)

    def output_head(self, streams: Streams) -> mx.array:
        """Logits [n, vocabulary]."""
        mix = self.weights.output_mix
        values, partial = self._joined(mix, streams)
        x = self.operations.head_collapse(values, partial, mix.scale, mix.base, self.weights.output_norm)
        return self.operations.project(x, self.weights.output)[0]

    def settled(self, streams: Streams) -> mx.array:
        """Streams that their last output has joined: [n, streams, width]."""
        return self._joined(self.weights.output_mix, streams)[0]

    def _joined(self, mix: HyperConnection, streams: Streams) -> tuple[mx.array, mx.array]:
        """The streams after the last block, and their products with the next mix."""
        if streams.output is None or streams.joint is None:
            return streams.values, self.operations.hyper_mix(streams.values, mix.mix)
        return self.operations.hyper_join(streams.values, streams.output, streams.joint, mix.mix)

    def _chooses(self, ratio: int, step: Step) -> bool:
        """Whether the indexer chooses among compressed rows, because there are more than it may take."""
        dense_rows = self._dense_index_rows if step.count == 1 else 0
        return ratio == 4 and step.end // 4 > max(self.shape.index_top_k, dense_rows)
