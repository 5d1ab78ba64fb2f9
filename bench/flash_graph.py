"""A model with the layers of Flash and tiny dimensions, made of random numbers in memory.

For measurements of what does not depend on the dimensions: how many operations a step has, and how long
building it takes.
"""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np

from ds4mlx.experts import FloatExperts, RawExperts
from ds4mlx.kernels.kernel import Maker
from ds4mlx.linear import FloatMatrix, HalfMatrix, Matrix, PackedMatrix
from ds4mlx.model import Model
from ds4mlx.operations import make_operations
from ds4mlx.weights import Compressor, HyperConnection, LayerWeights, Weights
from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.model.frontier import frontier_widths
from shared.model.known_shapes import FLASH
from shared.model.shape import ModelShape

SHAPE = replace(
    FLASH,
    variant="test",
    embedding_width=256,
    vocabulary_size=512,
    head_count=4,
    head_dim=128,
    query_rank=64,
    output_rank=32,
    output_groups=2,
    expert_count=8,
    expert_width=256,
    index_heads=4,
    index_top_k=16,
)


class RandomWeights:
    """Draws weights of a shape. `raw` stores them as a GPU holds a large model: experts as quantised blocks,
    matrices as Q8_0 and float16."""

    def __init__(self, shape: ModelShape, *, raw: bool, seed: int = 1) -> None:
        self._shape = shape
        self._raw = raw
        self._random = np.random.default_rng(seed)

    def draw(self) -> Weights:
        shape = self._shape
        return Weights(
            embedding=self._numbers(shape.vocabulary_size, shape.embedding_width).astype(mx.float16),
            layers=tuple(self._layer(index) for index in range(shape.layer_count)),
            output_mix=self._mix(shape.streams),
            output_norm=mx.ones((shape.embedding_width,)),
            output=self._matrix(shape.embedding_width, shape.vocabulary_size),
        )

    def _layer(self, index: int) -> LayerWeights:
        shape, ratio = self._shape, self._shape.compress_ratios[index]
        width, hidden, groups = shape.embedding_width, shape.expert_width, shape.output_groups
        hashed = index < shape.hash_layers
        table = self._random.integers(0, shape.expert_count, (shape.vocabulary_size, shape.experts_used))
        group_width = shape.head_count // groups * shape.head_dim
        return LayerWeights(
            ratio=ratio,
            attention_mix=self._mix(shape.mix_width),
            feed_forward_mix=self._mix(shape.mix_width),
            attention_norm=mx.ones((width,)),
            query_key_value_down=self._matrix(width, shape.query_rank + shape.head_dim),
            query_norm=mx.ones((shape.query_rank,)),
            query_up=self._matrix(shape.query_rank, shape.head_count * shape.head_dim),
            key_value_norm=mx.ones((shape.head_dim,)),
            sinks=mx.zeros((shape.head_count,)),
            output_down=self._matrix(group_width, shape.output_rank, groups=groups),
            output_up=self._matrix(groups * shape.output_rank, width),
            compressor=self._compressor(ratio) if ratio else None,
            feed_forward_norm=mx.ones((width,)),
            router=self._matrix(width, shape.expert_count, half=True),
            router_bias=None if hashed else mx.zeros((shape.expert_count,)),
            expert_table=mx.array(table.astype(np.int32)) if hashed else None,
            experts=self._experts(),
            shared_gate_up=self._matrix(width, 2 * hidden),
            shared_down=self._matrix(hidden, width),
        )

    def _compressor(self, ratio: int) -> Compressor:
        shape, widths = self._shape, frontier_widths(self._shape, ratio)
        indexed = ratio == 4
        outputs = sum(widths) + (shape.index_heads if indexed else 0)
        return Compressor(
            project=self._matrix(shape.embedding_width, outputs, half=True),
            positional=self._numbers(ratio, sum(widths)),
            norm=mx.ones((shape.head_dim,)),
            index_norm=mx.ones((shape.index_dim,)) if indexed else None,
            index_query=self._matrix(shape.query_rank, shape.index_heads * shape.index_dim, half=True)
            if indexed
            else None,
        )

    def _experts(self) -> RawExperts | FloatExperts:
        shape = self._shape
        width, hidden, count = shape.embedding_width, shape.expert_width, shape.expert_count
        if not self._raw:
            return FloatExperts(self._numbers(count, width, 2 * hidden), self._numbers(count, hidden, width))
        gate, up, down = TensorType.IQ2_XXS, TensorType.IQ2_XXS, TensorType.Q2_K
        return RawExperts(
            self._blocks(gate, hidden, width),
            self._blocks(up, hidden, width),
            self._blocks(down, width, hidden),
            in_type=gate,
            down_type=down,
        )

    def _blocks(self, kind: TensorType, rows: int, columns: int) -> mx.array:
        row_bytes = columns // block_elements(kind) * block_bytes(kind)
        # No byte is so large that a binary16 scale could be infinite.
        return mx.array(
            self._random.integers(0, 32, (self._shape.expert_count, rows, row_bytes), dtype=np.uint8)
        )

    def _mix(self, outputs: int) -> HyperConnection:
        inputs = self._shape.streams * self._shape.embedding_width
        mix = self._numbers(outputs, inputs).astype(mx.float16 if self._raw else mx.float32)
        return HyperConnection(mix, mx.ones((outputs,)), mx.zeros((outputs,)))

    def _matrix(self, inputs: int, outputs: int, *, half: bool = False, groups: int = 1) -> Matrix:
        """A matrix that model files hold in Q8_0, or in float16 if `half`."""
        several = (groups,) if groups > 1 else ()
        if not self._raw:
            return FloatMatrix(self._numbers(*several, inputs, outputs))
        if half:
            return HalfMatrix(self._numbers(*several, outputs, inputs).astype(mx.float16))
        codes = self._random.integers(0, 2**32, (*several, outputs, inputs // 4), dtype=np.uint32)
        scales = mx.full((*several, outputs, inputs // 32), inputs**-0.5 / 73)
        return PackedMatrix(mx.array(codes), scales, -128 * scales)

    def _numbers(self, *shape: int) -> mx.array:
        scale = np.float32(shape[-2] ** -0.5) if len(shape) > 1 else np.float32(1)
        return mx.array(self._random.standard_normal(shape, np.float32) * scale)


def flash_graph(*, raw: bool, kernels: bool = False) -> Model:
    """The model, with its weights evaluated. With `kernels` its graph can be built and traced anywhere, and
    run where there is Metal."""

    def makers(operation: str) -> Maker | None:
        return mx.fast.metal_kernel if kernels else None

    operations = make_operations(SHAPE, makers, rounds=True)
    weights = RandomWeights(SHAPE, raw=raw).draw()
    mx.eval(weights.arrays())
    return Model(weights, SHAPE, operations=operations)
