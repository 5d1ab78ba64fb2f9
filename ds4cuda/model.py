"""The forward pass, read top to bottom like the paper, in the order of STAGES.

Takes a step of one or many tokens through a session's buffers; the same code decodes and prefills.
Everything is computed in place: in scratch memory, and in the state at the slots of the step's positions.
Nothing here waits for the device, allocates, or depends on a token's value, so a step can be captured as a
graph. Spec: model §4. Must not know: sessions, files, how tokens are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ds4cuda.arrays import StepArrays
from ds4cuda.attention import Attention
from ds4cuda.device import Device
from ds4cuda.feed_forward import FeedForward
from ds4cuda.kernels.hyper_mix import slices
from ds4cuda.operations import make_operations
from ds4cuda.product_operations import make_code_operations, make_float_operations
from ds4cuda.products import CodeProducts, FloatProducts, Products
from ds4cuda.scratch import Scratch
from ds4cuda.state import State
from ds4cuda.steering import OutputEdit
from ds4cuda.step import Step
from ds4cuda.weights import HyperConnection, Weights
from shared.model.reference import Activation
from shared.model.rope import rotary_frequencies
from shared.model.shape import ModelShape

# The stages of the paper, and the method that computes each: what reads the same input is computed together.
STAGES = {
    "embed": "embed",
    "hyper_connection_pre": "hyper_connection_pre",
    "attention_queries": "attention.inputs",
    "key_value_row": "attention.inputs",
    "compress": "attention.compress",
    "index_select": "attention.index_select",
    "attend": "attention.attend",
    "attention_output": "attention.output",
    "hyper_connection_post": "hyper_connection_post",
    "route": "feed_forward.route",
    "experts": "feed_forward.experts",
    "shared_expert": "feed_forward.experts",
    "output_head": "output_head",
}

# Called after each layer with its number; may wait for the device, and may raise to stop.
LayerDone = Callable[[int], None]


class Model:
    """`activation` "kv" rounds cached rows and indexer vectors as the model does, "float" rounds nothing, and
    "actq" rounds as "kv" and the inputs of quantised matrices to 8 bits.

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
        self.rounds = activation != "float"
        self.operations = make_operations(device, shape, rounds=self.rounds)
        self.scratch = scratch = Scratch(device, shape, longest_step)
        self._arrays = arrays = StepArrays(device, scratch, shape)
        kinds = [rotary_frequencies(shape, ratio) for ratio in (0, 4)]
        self._frequencies = device.upload(np.stack(kinds))
        self._products: Products = (
            CodeProducts(make_code_operations(device, shape), scratch, arrays, shape, weights)
            if activation == "actq"
            else FloatProducts(make_float_operations(device, shape), scratch, arrays, shape, weights)
        )
        parts = (self.operations, self._products, scratch, arrays, shape)
        self.attention = Attention(*parts, self._frequencies)
        self.feed_forward = FeedForward(*parts)
        self.edit_output = OutputEdit(device, shape)
        self._dense_index_rows = dense_index_rows

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
            self._arrays.all_rotations,
            self._arrays.position,
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
        self.attention(index, weights, state, step)
        self.edit_output(index, "attn_out", self._arrays.output(step))
        self.hyper_connection_post(step)
        self.hyper_connection_pre(weights.feed_forward_mix, weights.feed_forward_norm, step)
        self.feed_forward(weights, step)
        self.edit_output(index, "ffn_out", self._arrays.output(step))
        self.hyper_connection_post(step)

    def expert_operands(self, step: Step) -> tuple[Any, Any, Any]:
        """Of the layer that was computed last: the experts' inputs [n, width], the experts of each token [n,
        used] and the weighted hidden vectors [n * used, expert width] of those."""
        arrays = self._arrays
        return arrays.x(step), arrays.routed(step)[0], arrays.hidden(step)[0]

    def embed(self, step: Step) -> None:
        """Each stream begins as the token's embedding."""
        self.operations.embed(self._arrays.tokens(step), self.weights.embedding, self._arrays.streams(step))

    def hyper_connection_pre(
        self, mix: HyperConnection, norm: Any, step: Step, *, joins: bool = True
    ) -> None:
        """The normed input of a block, after the output of the block before has joined the streams."""
        operations, arrays = self.operations, self._arrays
        joint, output = arrays.joint(step), arrays.output(step)
        mixing = operations.hyper_join if joins else operations.hyper_mix
        partial = self._mixed(mixing, mix, arrays.streams(step), output, joint)
        operations.hyper_collapse(
            arrays.streams(step), partial, mix.scale, mix.base, norm, arrays.x(step), joint
        )

    def hyper_connection_post(self, step: Step) -> None:
        """A block's output joins the streams at the beginning of the next block, which then reads them only
        once: nothing is launched here."""

    def output_head(self, step: Step) -> Any:
        """Logits [vocabulary] after the step's last token."""
        return self.logits_of(step, step.count - 1)

    def logits_of(self, step: Step, token: int) -> Any:
        """Logits after one of the step's tokens; each can be asked for once, since its output joins then."""
        weights, operations, arrays = self.weights, self.operations, self._arrays
        mix, one = weights.output_mix, slice(token, token + 1)
        streams, x = arrays.streams(step)[one], arrays.x(step)[one]
        joining = (arrays.output(step)[one], arrays.joint(step)[one])
        partial = self._mixed(operations.head_join, mix, streams, *joining)
        operations.head_collapse(
            streams, partial, mix.scale, mix.base, weights.output_norm, x, arrays.nothing
        )
        logits = self.scratch("logits", 1, self.shape.vocabulary_size)
        self._products.project(weights.output, x, logits)
        return logits[0]

    def _mixed(self, mixing: Any, mix: HyperConnection, streams: Any, output: Any, joint: Any) -> Any:
        """Partial sums of the streams' products with a mix, once `output` has joined them."""
        count, mixes = streams.shape[0], mix.mix.shape[0]
        partial = self.scratch("mix", count, slices(self.shape.embedding_width), mixes + 1)
        mixing(streams, output, joint, mix.mix, partial)
        return partial
