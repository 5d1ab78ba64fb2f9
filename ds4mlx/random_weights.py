"""Weights of any shape, of random numbers, stored as a GPU holds a model that it reads from a file.

Nothing is computed before it is used: weights of a model that would not fit can be made, and a part of them
taken. Must not know: the forward pass, what the weights are drawn for.
"""

from __future__ import annotations

import mlx.core as mx

from ds4mlx.experts import RawExperts
from ds4mlx.linear import HalfMatrix, PackedMatrix
from ds4mlx.weights import Compressor, HyperConnection, LayerWeights, Weights
from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape

_CODE_SPREAD = 73  # root mean square of Q8_0 codes that are all as likely


class RandomWeights:
    """Draws for a shape, with routed experts of these block types."""

    def __init__(self, shape: ModelShape, gate_up: TensorType, down: TensorType) -> None:
        self._shape = shape
        self._gate_up = gate_up
        self._down = down

    def draw(self) -> Weights:
        shape = self._shape
        return Weights(
            embedding=self.numbers(shape.vocabulary_size, shape.embedding_width).astype(mx.float16),
            layers=tuple(self._layer(index) for index in range(shape.layer_count)),
            output_mix=self.mix(shape.streams),
            output_norm=mx.ones((shape.embedding_width,)),
            output=self._packed(shape.embedding_width, shape.vocabulary_size),
        )

    def _layer(self, index: int) -> LayerWeights:
        shape, ratio = self._shape, self._shape.compress_ratios[index]
        width, groups = shape.embedding_width, shape.output_groups
        hidden = shape.expert_width * shape.shared_experts
        heads = shape.head_count * shape.head_dim
        hashed = index < shape.hash_layers
        table = (shape.vocabulary_size, shape.experts_used)
        return LayerWeights(
            ratio=ratio,
            attention_mix=self.mix(shape.mix_width),
            feed_forward_mix=self.mix(shape.mix_width),
            attention_norm=mx.ones((width,)),
            query_key_value_down=self._packed(width, shape.query_rank + shape.head_dim),
            query_norm=mx.ones((shape.query_rank,)),
            query_up=self._packed(shape.query_rank, heads),
            key_value_norm=mx.ones((shape.head_dim,)),
            sinks=mx.zeros((shape.head_count,)),
            output_down=self._packed(heads // groups, shape.output_rank, groups),
            output_up=self._packed(groups * shape.output_rank, width),
            compressor=self._compressor(ratio) if ratio else None,
            feed_forward_norm=mx.ones((width,)),
            router=self._half(width, shape.expert_count),
            router_bias=None if hashed else mx.zeros((shape.expert_count,)),
            expert_table=mx.random.randint(0, shape.expert_count, table, mx.int32) if hashed else None,
            experts=self._experts(),
            shared_gate_up=self._packed(width, 2 * hidden),
            shared_down=self._packed(hidden, width),
        )

    def _compressor(self, ratio: int) -> Compressor:
        shape, frontier = self._shape, sum(frontier_widths(self._shape, ratio))
        indexed = ratio == 4
        return Compressor(
            project=self._half(shape.embedding_width, frontier + (shape.index_heads if indexed else 0)),
            positional=self.numbers(ratio, frontier),
            norm=mx.ones((shape.head_dim,)),
            index_norm=mx.ones((shape.index_dim,)) if indexed else None,
            index_query=self._half(shape.query_rank, shape.index_heads * shape.index_dim)
            if indexed
            else None,
        )

    def _experts(self) -> RawExperts:
        shape = self._shape
        width, hidden = shape.embedding_width, shape.expert_width
        return RawExperts(
            self._blocks(self._gate_up, hidden, width),
            self._blocks(self._gate_up, hidden, width),
            self._blocks(self._down, width, hidden),
            in_type=self._gate_up,
            down_type=self._down,
        )

    def _blocks(self, kind: TensorType, rows: int, columns: int) -> mx.array:
        row_bytes = columns // block_elements(kind) * block_bytes(kind)
        # Without this bit of its exponent no binary16 number among them is infinite.
        drawn = mx.bitwise_and(_random_bytes(1, rows, row_bytes), mx.array(0xBF, mx.uint8))
        # All experts have the same numbers, each in a place of its own: drawing takes several times as much
        # memory as what is drawn.
        return mx.tile(drawn, (self._shape.expert_count, 1, 1))

    def mix(self, outputs: int) -> HyperConnection:
        """Of the streams, with `outputs` outputs."""
        mix = self.numbers(outputs, self._shape.streams * self._shape.embedding_width)
        return HyperConnection(mix.astype(mx.float16), mx.ones((outputs,)), mx.zeros((outputs,)))

    def _packed(self, inputs: int, outputs: int, groups: int = 1) -> PackedMatrix:
        several = (groups,) if groups > 1 else ()
        scales = mx.full((*several, outputs, inputs // 32), inputs**-0.5 / _CODE_SPREAD)
        codes = _random_bytes(*several, outputs, inputs).view(mx.uint32)
        return PackedMatrix(codes, scales, -128 * scales)

    def _half(self, inputs: int, outputs: int) -> HalfMatrix:
        return HalfMatrix(self.numbers(outputs, inputs).astype(mx.float16))

    def numbers(self, rows: int, columns: int) -> mx.array:
        """Of which a row times `columns` numbers of size 1 is of size 1, float32 [rows, columns]."""
        return mx.random.normal((rows, columns)) * columns**-0.5


def _random_bytes(*shape: int) -> mx.array:
    return mx.random.randint(0, 256, shape, mx.uint8)
