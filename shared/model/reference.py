"""The forward pass in NumPy: the executable specification that both backends are measured against.

Reads top to bottom like the paper, one method per stage, for a chunk of one or more tokens at once. A chunk
gives what its tokens give one by one. Changes no state: see `reference_state`. Spec: model §4 and §5.3.
Must not know: sessions, files, text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from shared.expert_watch import ExpertWatch, unwatched
from shared.model.reference_math import (
    attention,
    hyper_connection_weights,
    largest_first,
    pool,
    rms,
    rotate,
    sigmoid,
    softplus,
    swiglu,
)
from shared.model.reference_state import Frontier, LayerStep, ReferenceState, empty_frontier
from shared.model.reference_weights import ReferenceWeights
from shared.model.rope import rope_tables
from shared.model.shape import ModelShape
from shared.quant.activations import round_q8_0, round_q8_k
from shared.quant.rounding import hadamard128, round_f16, round_fp4, round_fp8_row
from shared.steering.directions import Component
from shared.steering.steering import Steering

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# "kv" is the model's own graph; "float" leaves out every rounding of rows; "actq" adds 8-bit activations.
Activation = Literal["kv", "float", "actq"]

# Called with a layer, its component and what that gives, [n, D], before it is steered.
OutputWatch = Callable[[int, Component, Array], None]

# The stages of one layer, and before and after them, in the order of every backend's forward pass.
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

_QUERY_BLOCK = 64
_LEAST_WEIGHT_SUM = np.float32(2.0**-14)


class Reference:
    """The model's mathematics over float32 arrays; n tokens, S streams, D their width."""

    def __init__(
        self,
        weights: ReferenceWeights,
        shape: ModelShape,
        activation: Activation = "kv",
        dense_index_rows: int = 0,
    ) -> None:
        """A step of one token skips the indexer's choice up to `dense_index_rows` compressed rows, as GPU
        builds of the C engine do up to 1,024; 0 always chooses. Spec: model §4.7."""
        self.shape = shape
        self._dense_index_rows = dense_index_rows
        self._weights = weights
        # Both change what `forward` does from its next call on.
        self.steering: Steering | None = None
        self.watch_outputs: OutputWatch | None = None
        self.rounded = activation != "float"
        self._eight_bit = activation == "actq"
        self._watch: ExpertWatch = unwatched

    def watched(self, watch: ExpertWatch) -> Reference:
        """The same model, whose every step `watch` is shown."""
        other = copy(self)
        other._watch = watch
        return other

    def forward(
        self,
        tokens: Sequence[int],
        state: ReferenceState,
        after_layer: Callable[[int], None] = lambda layer: None,
    ) -> tuple[Array, list[LayerStep]]:
        """Streams [n, S, D] after the last layer for `tokens` at the state's position, and what to commit.

        `after_layer` is called with the number of each finished layer and may raise.
        """
        ids = np.asarray(tokens, dtype=np.int64)
        streams = self.embed(ids)
        steps = []
        for layer in range(self.shape.layer_count):
            streams, step = self.attention_half(layer, streams, state)
            streams = self.feed_forward_half(layer, streams, ids)
            steps.append(step)
            after_layer(layer)
        return streams, steps

    def attention_half(self, layer: int, streams: Array, state: ReferenceState) -> tuple[Array, LayerStep]:
        """Streams [n, S, D] through the attention of a layer, at the state's position."""
        weights, cache, start = self._weights.layer(layer), state.layers[layer], state.position
        rope = _position_rope(self.shape, min(cache.ratio, 1), start, len(streams))
        mixed, post, combine = self.hyper_connection_pre(layer, "attn", streams)
        hidden = rms(mixed, self.shape.rms_epsilon) * weights("attn_norm.weight")
        queries, query_latent = self.attention_queries(layer, hidden, rope)
        raw = self.key_value_row(layer, hidden, rope)
        visible_raw = np.concatenate((cache.recent(start), raw))
        compressed, visible = cache.compressed[:0], np.zeros((len(streams), 0), np.bool_)
        frontier, index_frontier = cache.frontier, cache.index_frontier
        if frontier is not None:
            rows, frontier = self.compress(layer, "attn", hidden, start, frontier)
            compressed = cache.append(cache.compressed, start, rows)
            visible = _finished_windows(start, len(streams), cache.ratio, len(compressed))
        if index_frontier is not None:
            keys, index_frontier = self.compress(layer, "indexer", hidden, start, index_frontier)
            index_rows = cache.append(cache.index_rows, start, keys)
            visible = self.index_select(layer, hidden, query_latent, index_rows, visible, rope)
        heads = self.attend(layer, queries, visible_raw, compressed, visible)
        output = self._steered(layer, "attn_out", self.attention_output(layer, heads, rope))
        return self.hyper_connection_post(streams, output, post, combine), LayerStep(
            raw, frontier, index_frontier
        )

    def feed_forward_half(self, layer: int, streams: Array, tokens: Ids) -> Array:
        """Streams [n, S, D] through the experts of a layer."""
        mixed, post, combine = self.hyper_connection_pre(layer, "ffn", streams)
        hidden = rms(mixed, self.shape.rms_epsilon) * self._weights.layer(layer)("ffn_norm.weight")
        chosen, shares = self.route(layer, hidden, tokens)
        output = self.experts(layer, hidden, chosen, shares) + self.shared_expert(layer, hidden)
        output = self._steered(layer, "ffn_out", output)
        return self.hyper_connection_post(streams, output, post, combine)

    def embed(self, tokens: Ids) -> Array:
        """Token ids [n] to streams [n, S, D]: the embedding, once per stream. Spec: model §4.3."""
        return np.repeat(self._weights.embedding(tokens)[:, None], self.shape.streams, axis=1)

    def hyper_connection_pre(self, layer: int, half: str, streams: Array) -> tuple[Array, Array, Array]:
        """The input [n, D] of half a layer ("attn" or "ffn"), its post weights [n, S] and combine matrices
        [n, S, S]. Spec: model §4.4."""
        weights, shape = self._weights.layer(layer), self.shape
        flat = rms(streams.reshape(len(streams), -1), shape.rms_epsilon)
        pre, post, combine = hyper_connection_weights(
            flat @ weights(f"hc_{half}_fn.weight").T,
            weights(f"hc_{half}_scale.weight"),
            weights(f"hc_{half}_base.weight"),
            streams=shape.streams,
            rounds=shape.sinkhorn_rounds,
            epsilon=shape.hyper_connection_epsilon,
        )
        return (pre[:, None] @ streams)[:, 0], post, combine

    def attention_queries(self, layer: int, hidden: Array, rope: tuple[Array, Array]) -> tuple[Array, Array]:
        """Queries [n, heads, head_dim], normed per head and rotated, and the latent [n, query_rank] that the
        indexer shares. Spec: model §4.5, 2."""
        weights, shape = self._weights.layer(layer), self.shape
        latent = rms(self._dense(hidden, weights("attn_q_a.weight")), shape.rms_epsilon)
        latent = latent * weights("attn_q_a_norm.weight")
        queries = self._dense(latent, weights("attn_q_b.weight"))
        queries = queries.reshape(len(hidden), shape.head_count, shape.head_dim)
        return rotate(rms(queries, shape.rms_epsilon), *rope), latent

    def key_value_row(self, layer: int, hidden: Array, rope: tuple[Array, Array]) -> Array:
        """The row [n, head_dim] that is key and value of every head. Spec: model §4.5, 3."""
        weights, shape = self._weights.layer(layer), self.shape
        row = rms(self._dense(hidden, weights("attn_kv.weight")), shape.rms_epsilon)
        row = rotate(row * weights("attn_kv_a_norm.weight"), *rope)
        return self._round_row(row)

    def compress(
        self, layer: int, kind: str, hidden: Array, start: int, frontier: Frontier
    ) -> tuple[Array, Frontier]:
        """The compressed rows [windows, width] that this chunk completes, and the frontier after it.

        `kind` is "attn" or "indexer". The rows are rotated at the first position of their window and rounded
        as they are stored. Spec: model §4.6 and §5.3.
        """
        weights = self._weights.layer(layer)
        bias = weights(f"{kind}_compressor_ape.weight")
        norm = weights(f"{kind}_compressor_norm.weight")
        ratio, width = len(bias), len(norm)
        overlapping = bias.shape[1] == 2 * width
        current = ratio if overlapping else 0  # frontier row of the window in progress
        phase = start % ratio
        position = np.arange(start, start + len(hidden))
        kv = hidden @ weights(f"{kind}_compressor_kv.weight").T
        score = hidden @ weights(f"{kind}_compressor_gate.weight").T + bias[position % ratio]
        kv = np.concatenate((frontier.kv[current : current + phase], kv))
        score = np.concatenate((frontier.score[current : current + phase], score))
        windows = len(kv) // ratio
        if windows == 0:
            after = Frontier(frontier.kv.copy(), frontier.score.copy())
            after.kv[current : current + len(kv)] = kv
            after.score[current : current + len(kv)] = score
            return np.zeros((0, width), np.float32), after
        window_kv = kv[: windows * ratio].reshape(windows, ratio, bias.shape[1])
        window_score = score[: windows * ratio].reshape(windows, ratio, bias.shape[1])
        after = empty_frontier(ratio, width)
        after.kv[current : current + len(kv) - windows * ratio] = kv[windows * ratio :]
        after.score[current : current + len(kv) - windows * ratio] = score[windows * ratio :]
        if overlapping:
            # A token's first half serves the row of the next window, its second half that of its own.
            whole_kv = np.concatenate((frontier.kv[None, :ratio], window_kv))
            whole_score = np.concatenate((frontier.score[None, :ratio], window_score))
            after.kv[:ratio], after.score[:ratio] = whole_kv[-1], whole_score[-1]
            window_kv = np.concatenate((whole_kv[:-1, :, :width], window_kv[:, :, width:]), axis=1)
            window_score = np.concatenate((whole_score[:-1, :, :width], window_score[:, :, width:]), axis=1)
        rows = rms(pool(window_kv, window_score), self.shape.rms_epsilon) * norm
        first = (start // ratio + np.arange(windows)) * ratio
        rows = rotate(rows, *rope_tables(self.shape, ratio, first))
        return (self._round_row(rows) if kind == "attn" else self._round_index(rows)), after

    def index_select(
        self,
        layer: int,
        hidden: Array,
        query_latent: Array,
        index_rows: Array,
        visible: Mask,
        rope: tuple[Array, Array],
    ) -> Mask:
        """Of the `visible` [n, rows] compressed rows, those with the top_k scores; the lower row on ties.
        Spec: model §4.7."""
        weights, shape = self._weights.layer(layer), self.shape
        dense_rows = self._dense_index_rows if len(hidden) == 1 else 0
        if len(index_rows) <= max(shape.index_top_k, dense_rows):
            return visible
        queries = query_latent @ weights("indexer.attn_q_b.weight").T
        queries = queries.reshape(len(hidden), shape.index_heads, shape.index_dim)
        queries = self._round_index(rotate(queries, *rope))
        share = hidden @ weights("indexer.proj.weight").T
        share = share * np.float32((shape.index_dim * shape.index_heads) ** -0.5)
        selected = np.zeros_like(visible)
        for block in _blocks(len(hidden)):
            match = np.maximum(queries[block] @ index_rows.T, 0)
            # Head by head, not as a product: equal rows must get equal scores.
            scores = (match * share[block, :, None]).sum(axis=1)
            scores = np.where(visible[block], scores, np.float32(-np.inf))
            best = largest_first(scores, shape.index_top_k)
            np.put_along_axis(selected[block], best, True, axis=1)
        return selected & visible

    def attend(self, layer: int, queries: Array, raw: Array, compressed: Array, visible: Mask) -> Array:
        """Head outputs [n, heads, head_dim]. `raw` ends with the n rows of the chunk itself, of which a query
        sees its own and the window before it; `visible` tells for the compressed rows. Spec: model §4.5, 7.
        """
        sinks, window = self._weights.layer(layer)("attn_sinks.weight"), self.shape.window
        before = len(raw) - len(queries)
        heads = []
        for block in _blocks(len(queries)):
            first = max(0, before + block.start - window + 1)
            rows = np.arange(first, before + block.stop)
            own = np.arange(before + block.start, before + block.stop)[:, None]
            near = (rows <= own) & (rows > own - window)
            heads.append(
                attention(
                    queries[block],
                    np.concatenate((raw[first : before + block.stop], compressed)),
                    np.concatenate((near, visible[block]), axis=1),
                    sinks,
                )
            )
        return np.concatenate(heads)

    def attention_output(self, layer: int, heads: Array, rope: tuple[Array, Array]) -> Array:
        """Head outputs turned back at the query's position and projected group by group to [n, D].
        Spec: model §4.5, 8 and 9."""
        weights, shape = self._weights.layer(layer), self.shape
        cosines, sines = rope
        grouped = rotate(heads, cosines, -sines).reshape(len(heads), shape.output_groups, -1)
        matrix = weights("attn_output_a.weight").reshape(shape.output_groups, shape.output_rank, -1)
        if self._eight_bit:
            grouped = round_q8_0(grouped)
        low = (grouped.transpose(1, 0, 2) @ matrix.transpose(0, 2, 1)).transpose(1, 0, 2)
        return self._dense(low.reshape(len(heads), -1), weights("attn_output_b.weight"))

    def hyper_connection_post(self, streams: Array, output: Array, post: Array, combine: Array) -> Array:
        """Streams [n, S, D] after half a layer: its output spread, the old streams mixed by the transposed
        combine matrix. Spec: model §4.4."""
        mixed: Array = post[:, :, None] * output[:, None] + combine.transpose(0, 2, 1) @ streams
        return mixed

    def route(self, layer: int, hidden: Array, tokens: Ids) -> tuple[Ids, Array]:
        """Expert ids and weights, each [n, experts used]; early layers take the ids from the token's table.
        Spec: model §4.8, 2 to 4."""
        weights, shape = self._weights.layer(layer), self.shape
        affinity = np.sqrt(softplus(hidden @ weights("ffn_gate_inp.weight").T))
        if layer < shape.hash_layers:
            chosen = self._weights.hashed_experts(layer, tokens)
        else:
            chosen = largest_first(affinity + self._weights.router_bias(layer), shape.experts_used)
        share = np.take_along_axis(affinity, chosen, axis=1)
        total = np.maximum(share.sum(axis=1, keepdims=True), _LEAST_WEIGHT_SUM)
        return chosen, share / total * np.float32(shape.expert_weight_scale)

    def experts(self, layer: int, hidden: Array, chosen: Ids, shares: Array) -> Array:
        """The routed experts' sum [n, D]; the route weight goes in before the down matrix.
        Spec: model §4.8, 5."""
        inputs = round_q8_k(hidden) if self._eight_bit else hidden
        slots = np.zeros((*chosen.shape, hidden.shape[1]), np.float32)
        rows: Array | None = None
        for expert in sorted(set(chosen.ravel().tolist())):
            token, slot = np.nonzero(chosen == expert)
            own = inputs[token]
            gate = own @ self._weights.expert(layer, "gate", expert).T
            up = own @ self._weights.expert(layer, "up", expert).T
            inner = swiglu(gate, up, self.shape.swiglu_clamp) * shares[token, slot, None]
            if rows is None:
                rows = np.zeros((*chosen.shape, inner.shape[1]), np.float32)
            rows[token, slot] = inner
            if self._eight_bit:
                inner = round_q8_k(inner)
            slots[token, slot] = inner @ self._weights.expert(layer, "down", expert).T
        if rows is not None:
            self._watch(layer, hidden, chosen, rows)
        total: Array = slots.sum(axis=1)
        return total

    def shared_expert(self, layer: int, hidden: Array) -> Array:
        """The expert [n, D] that every token takes. Spec: model §4.8, 6."""
        weights = self._weights.layer(layer)
        gate = self._dense(hidden, weights("ffn_gate_shexp.weight"))
        up = self._dense(hidden, weights("ffn_up_shexp.weight"))
        return self._dense(swiglu(gate, up, self.shape.swiglu_clamp), weights("ffn_down_shexp.weight"))

    def output_head(self, streams: Array) -> Array:
        """Logits [n, vocabulary] of streams [n, S, D]. Spec: model §4.9."""
        weights, shape = self._weights.tensor, self.shape
        flat = rms(streams.reshape(len(streams), -1), shape.rms_epsilon)
        mix = flat @ weights("output_hc_fn.weight").T
        share = sigmoid(mix * weights("output_hc_scale.weight") + weights("output_hc_base.weight"))
        share = share + np.float32(shape.hyper_connection_epsilon)
        mixed = (share[:, None] @ streams)[:, 0]
        hidden = rms(mixed, shape.rms_epsilon) * weights("output_norm.weight")
        return self._dense(hidden, weights("output.weight"))

    def _steered(self, layer: int, component: Component, output: Array) -> Array:
        """The output [n, D] of half a layer as it joins the streams. Spec: model §7."""
        if self.watch_outputs is not None:
            self.watch_outputs(layer, component, output)
        return output if self.steering is None else self.steering.steered(layer, component, output)

    def _dense(self, inputs: Array, matrix: Array) -> Array:
        """A product with a Q8_0 matrix [outputs, inputs]."""
        product: Array = (round_q8_0(inputs) if self._eight_bit else inputs) @ matrix.T
        return product

    def _round_row(self, rows: Array) -> Array:
        return round_f16(round_fp8_row(rows, self.shape.rotary_dim)) if self.rounded else rows

    def _round_index(self, rows: Array) -> Array:
        return round_fp4(hadamard128(rows)) if self.rounded else rows


def _blocks(count: int) -> list[slice]:
    """Slices over queries that bound the size of their score arrays."""
    return [slice(first, min(first + _QUERY_BLOCK, count)) for first in range(0, count, _QUERY_BLOCK)]


@lru_cache(maxsize=2)
def _position_rope(shape: ModelShape, kind: int, start: int, count: int) -> tuple[Array, Array]:
    """Rotation at `count` positions from `start`; layers turn alike without compression, and alike with."""
    return rope_tables(shape, kind, np.arange(start, start + count))


def _finished_windows(start: int, count: int, ratio: int, rows: int) -> Mask:
    """Which of `rows` compressed rows each of `count` queries from `start` may see, [count, rows]."""
    position = np.arange(start, start + count)[:, None]
    finished: Mask = np.arange(rows) < (position + 1) // ratio
    return finished
