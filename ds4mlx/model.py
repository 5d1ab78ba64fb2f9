"""The forward pass, read top to bottom like the paper: one method per stage, in the order of STAGES.

Takes a step of one or many tokens through a session's caches; the same code decodes and prefills.
Spec: model §4. Must not know: sessions, files, how tokens are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import mlx.core as mx

from ds4mlx.attention import Selection, attend, index_scores, select
from ds4mlx.compressor import pool, windows
from ds4mlx.experts import clamped_swiglu, run_experts
from ds4mlx.hyper_connection import mixing_weights
from ds4mlx.rounding import hadamard, round_f16, round_fp4, round_fp8_row
from ds4mlx.state import LayerCache, State, StepResult, frontier_widths, read_ring, write_ring
from ds4mlx.step import Step, rotate
from ds4mlx.top_k import top_k_indices
from ds4mlx.weights import Compressor, HyperConnection, LayerWeights, Weights
from shared.model.shape import ModelShape

Activation = Literal["kv", "float"]
# Called after each layer with its number and the streams so far; may evaluate, and may raise to stop.
LayerDone = Callable[[int, mx.array], None]

STAGES = (
    "embed",
    "hyper_connection_pre",
    "attention_queries",
    "key_value_row",
    "compress",
    "index_select",
    "attend",
    "attention_output",
    "hyper_connection_post",
    "route",
    "experts",
    "shared_expert",
    "output_head",
)
_SMALLEST_ROUTE_SUM = 2.0**-14


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
    ) -> None:
        self.weights = weights
        self.shape = shape
        self._dense_index_rows = dense_index_rows
        self._rounds = activation == "kv"
        self._query_scale = mx.array([shape.head_dim**-0.5] * shape.head_dim)

    @property
    def row_dtype(self) -> mx.Dtype:
        """Of stored compressed rows."""
        return mx.float16 if self._rounds else mx.float32

    def forward(self, tokens: mx.array, state: State, layer_done: LayerDone | None = None) -> StepResult:
        """Evaluate `tokens` int32 [n], which follow what `state` holds.

        Writes rows into the caches, but none that `state` as it stands could read: it moves on only when it
        is handed the result.
        """
        step = Step(self.shape, state.position, tokens.shape[0])
        frontiers: list[mx.array | None] = []
        streams = self.embed(tokens)
        for index, (weights, cache) in enumerate(zip(self.weights.layers, state.layers, strict=True)):
            streams, rows = self.layer(weights, cache, streams, tokens, step)
            frontiers.append(rows)
            if layer_done is not None:
                layer_done(index, streams)
        return StepResult(step.count, self.output_head(streams[-1:])[0], frontiers)

    def layer(
        self, weights: LayerWeights, cache: LayerCache, streams: mx.array, tokens: mx.array, step: Step
    ) -> tuple[mx.array, mx.array | None]:
        """Streams [n, streams, width] after one layer, and the tokens' frontier rows."""
        streams, rows = self._attention(weights, cache, streams, step)
        return self._feed_forward(weights, streams, tokens), rows

    def embed(self, tokens: mx.array) -> mx.array:
        """Residual streams [n, streams, width]: copies of the token's embedding."""
        rows = mx.take(self.weights.embedding, tokens, axis=0).astype(mx.float32)
        return mx.broadcast_to(rows[:, None, :], (rows.shape[0], self.shape.streams, rows.shape[1]))

    def _attention(
        self, weights: LayerWeights, cache: LayerCache, streams: mx.array, step: Step
    ) -> tuple[mx.array, mx.array | None]:
        x, half_post, combine = self.hyper_connection_pre(weights.attention_mix, streams)
        x = self._norm(x, weights.attention_norm)
        low, row = mx.split(weights.query_key_value_down(x), [self.shape.query_rank], axis=-1)
        queries, ranks = self.attention_queries(weights, low, step)
        self.key_value_row(weights, row, cache, step)
        rows, head_weights = self.compress(weights.compressor, cache, x, step)
        selections = self.index_select(weights.compressor, cache, ranks, head_weights, step)
        mixed = self.attend(weights, cache, queries, selections, step)
        output = self.attention_output(weights, mixed, step)
        return self.hyper_connection_post(streams, output, half_post, combine), rows

    def _feed_forward(self, weights: LayerWeights, streams: mx.array, tokens: mx.array) -> mx.array:
        x, half_post, combine = self.hyper_connection_pre(weights.feed_forward_mix, streams)
        x = self._norm(x, weights.feed_forward_norm)
        chosen, shares = self.route(weights, x, tokens)
        output = self.experts(weights, x, chosen, shares) + self.shared_expert(weights, x)
        return self.hyper_connection_post(streams, output, half_post, combine)

    def hyper_connection_pre(
        self, mix: HyperConnection, streams: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """The block's input [n, width], and the weights with which its output joins the streams again: half
        the post weights [n, streams] and the combine matrix [n, streams, streams]."""
        pre, half_post, combine = mixing_weights(
            mix(self._norm(streams.reshape(streams.shape[0], -1))),
            streams=self.shape.streams,
            rounds=self.shape.sinkhorn_rounds,
            epsilon=self.shape.hyper_connection_epsilon,
        )
        return (pre[:, None, :] @ streams)[:, 0], half_post, combine

    def attention_queries(
        self, weights: LayerWeights, low: mx.array, step: Step
    ) -> tuple[mx.array, mx.array]:
        """Rotated and scaled queries [n, heads, head dim], and the low-rank vectors behind them."""
        ranks = self._norm(low, weights.query_norm)
        heads = weights.query_up(ranks).reshape(-1, self.shape.head_count, self.shape.head_dim)
        heads = self._norm(heads, self._query_scale)
        return rotate(heads, step.rotation(weights.ratio)[:, None, :]), ranks

    def key_value_row(self, weights: LayerWeights, row: mx.array, cache: LayerCache, step: Step) -> None:
        """Norm, rotate and round each token's one row, key and value of all heads, and store it."""
        row = rotate(self._norm(row, weights.key_value_norm), step.rotation(weights.ratio))
        if self._rounds:
            row = round_f16(round_fp8_row(row, self.shape.rotary_dim))
        cache.raw = write_ring(cache.raw, step.start, row)

    def compress(
        self, compressor: Compressor | None, cache: LayerCache, x: mx.array, step: Step
    ) -> tuple[mx.array | None, mx.array | None]:
        """Append the compressed rows of windows that this step completes, before it attends.

        Returns the tokens' frontier rows, which the cache may take only when the whole step is done, and the
        index head weights [n, index heads] of ratio-4 layers.
        """
        if compressor is None or cache.frontier is None or cache.compressed is None:
            return None, None
        ratio, shape = cache.ratio, self.shape
        width = compressor.positional.shape[1]
        projected = compressor.project(x)
        rows = projected[:, :width] + _by_position(compressor.positional, step)
        count = step.completed_windows(ratio)
        if count:
            whole = self._with_unfinished_window(cache.frontier, rows, ratio, step)
            previous, current = windows(whole, ratio)
            rotation = step.window_rotation(ratio)
            parts = _columns(frontier_widths(shape, ratio))
            pooled = self._norm(pool(previous, current, *parts[:2]), compressor.norm)
            pooled = rotate(pooled, rotation)
            if self._rounds:
                pooled = round_fp8_row(pooled, shape.rotary_dim)
            first = step.start // ratio
            cache.compressed[first : first + count] = pooled.astype(self.row_dtype)
            if cache.index_rows is not None:
                pooled = self._norm(pool(previous, current, *parts[2:]), compressor.index_norm)
                pooled = self._index_vector(pooled, rotation)
                cache.index_rows[first : first + count] = pooled
        return rows, projected[:, width:] if ratio == 4 else None

    def index_select(
        self,
        compressor: Compressor | None,
        cache: LayerCache,
        ranks: mx.array,
        head_weights: mx.array | None,
        step: Step,
    ) -> list[Selection] | None:
        """Which compressed rows each block of queries attends to; None: all that are visible."""
        if compressor is None or compressor.index_query is None or cache.index_rows is None:
            return None
        dense_rows = self._dense_index_rows if step.count == 1 else 0
        if head_weights is None or step.end // cache.ratio <= max(self.shape.index_top_k, dense_rows):
            return None
        queries = compressor.index_query(ranks).reshape(-1, self.shape.index_heads, self.shape.index_dim)
        queries = self._index_vector(queries, step.rotation(cache.ratio)[:, None, :])
        return [
            select(
                index_scores(
                    queries[block.first : block.end],
                    head_weights[block.first : block.end],
                    cache.index_rows[: block.compressed],
                ),
                block,
                self.shape.index_top_k,
            )
            if block.compressed > self.shape.index_top_k
            else Selection(mask=block.compressed_mask)
            for block in step.blocks(cache.ratio)
        ]

    def attend(
        self,
        weights: LayerWeights,
        cache: LayerCache,
        queries: mx.array,
        selections: list[Selection] | None,
        step: Step,
    ) -> mx.array:
        """Each query over its window's raw rows and the compressed rows: [n, heads, head dim]."""
        raw = read_ring(cache.raw, step.first_raw, step.end - step.first_raw)
        outputs = []
        for number, block in enumerate(step.blocks(cache.ratio)):
            first = block.first_key - step.first_raw
            outputs.append(
                attend(
                    queries[block.first : block.end],
                    raw[first : first + block.key_count],
                    None if cache.compressed is None else cache.compressed[: block.compressed],
                    weights.sinks,
                    block,
                    None if selections is None else selections[number],
                )
            )
        return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=0)

    def attention_output(self, weights: LayerWeights, mixed: mx.array, step: Step) -> mx.array:
        """Turn values back at the query's position, then project down group by group, and up: [n, width]."""
        mixed = rotate(mixed, step.inverse_rotation(weights.ratio)[:, None, :])
        grouped = mixed.reshape(step.count, self.shape.output_groups, -1).swapaxes(0, 1)
        low = weights.output_down(grouped).swapaxes(0, 1).reshape(step.count, -1)
        return weights.output_up(low)

    def hyper_connection_post(
        self, streams: mx.array, output: mx.array, half_post: mx.array, combine: mx.array
    ) -> mx.array:
        """The streams mixed among themselves, plus the block's output in each: [n, streams, width]."""
        spread = half_post[:, :, None] * output[:, None, :]
        return mx.addmm(spread, combine.swapaxes(1, 2), streams, beta=2.0)

    def route(self, weights: LayerWeights, x: mx.array, tokens: mx.array) -> tuple[mx.array, mx.array]:
        """Experts of each token, int32 [n, used], and their weights, float32 [n, used]."""
        probabilities = mx.sqrt(mx.logaddexp(weights.router(x), 0.0))
        if weights.expert_table is not None:
            chosen = mx.take(weights.expert_table, tokens, axis=0)
        else:
            bias = weights.router_bias
            ranked = probabilities if bias is None else probabilities + bias
            chosen = top_k_indices(ranked, self.shape.experts_used)
        shares = mx.take_along_axis(probabilities, chosen, axis=-1)
        total = mx.maximum(shares.sum(axis=-1, keepdims=True), _SMALLEST_ROUTE_SUM)
        return chosen, shares / total * self.shape.expert_weight_scale

    def experts(self, weights: LayerWeights, x: mx.array, chosen: mx.array, shares: mx.array) -> mx.array:
        return run_experts(weights.experts, x, chosen, shares, self.shape.swiglu_clamp)

    def shared_expert(self, weights: LayerWeights, x: mx.array) -> mx.array:
        return weights.shared_down(clamped_swiglu(weights.shared_gate_up(x), self.shape.swiglu_clamp))

    def output_head(self, streams: mx.array) -> mx.array:
        """Logits [n, vocabulary] from streams [n, streams, width]."""
        head = self.weights.output_mix
        mixed = head(self._norm(streams.reshape(streams.shape[0], -1)))
        pre = mx.sigmoid(mixed) + self.shape.hyper_connection_epsilon
        x = (pre[:, None, :] @ streams)[:, 0]
        return self.weights.output(self._norm(x, self.weights.output_norm))

    def _norm(self, x: mx.array, weight: mx.array | None = None) -> mx.array:
        return mx.fast.rms_norm(x, weight, self.shape.rms_epsilon)

    def _index_vector(self, x: mx.array, rotation: mx.array) -> mx.array:
        """Rotate and, as the model does, transform and round: x [..., index dim]."""
        x = rotate(x, rotation[..., -self.shape.index_dim // 2 :])
        return round_fp4(hadamard(x)) if self._rounds else x

    def _with_unfinished_window(self, frontier: mx.array, rows: mx.array, ratio: int, step: Step) -> mx.array:
        """This step's frontier rows after those of the window that was begun, and before that, where windows
        overlap, of the whole window before it."""
        first = step.start // ratio * ratio - (ratio if ratio == 4 else 0)
        if first == step.start:
            return rows
        return mx.concatenate([read_ring(frontier, first, step.start - first), rows], axis=0)


def _by_position(table: mx.array, step: Step) -> mx.array:
    """Rows of a table that repeats, for the step's positions."""
    ratio = table.shape[0]
    first = step.start % ratio
    if first + step.count <= ratio:
        return table[first : first + step.count]
    return mx.take(table, mx.arange(step.start, step.end) % ratio, axis=0)


def _columns(widths: tuple[int, ...]) -> list[slice]:
    ends = [sum(widths[: part + 1]) for part in range(len(widths))]
    return [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
