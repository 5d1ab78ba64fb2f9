"""A whole model of random weights, made in the GPU's memory: valid blocks of the q2 recipe, and no file.

Must not know: what is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ds4cuda.device import Device
from ds4cuda.kernels.kernel import Kernel, blocks_for
from ds4cuda.operations import compressor_columns
from ds4cuda.weights import Compressor, Experts, HyperConnection, LayerWeights, Matrix, Weights
from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape
from shared.quant.iq2 import iq2_grid

SOURCE = Path(__file__).parent / "fill.cu"
BLOCKS, HALVES = Kernel("fill_blocks", SOURCE), Kernel("fill_halves", SOURCE)
# The q2 recipe's routed experts: 16-bit words of a block that are scales, and a scale of a plain size.
_SCALES = {TensorType.IQ2_XXS: ((0, -1), 1e-3), TensorType.Q2_K: ((40, 41), 4e-3)}
_CODE_SPREAD = 73  # root mean square of Q8_0 codes that are all as likely
_THREADS, _MOST_BLOCKS = 256, 1 << 16


class RandomWeights:
    """Draws for a shape; each array has a seed of its own."""

    def __init__(self, device: Device, shape: ModelShape) -> None:
        self._device = device
        self._shape = shape
        self._blocks = BLOCKS.specialise(device)
        self._halves = HALVES.specialise(device)
        self._seed = 0
        self._random = np.random.default_rng(0)

    def draw(self) -> Weights:
        shape = self._shape
        return Weights(
            embedding=self._half_numbers(shape.vocabulary_size, shape.embedding_width),
            layers=tuple(self._layer(index) for index in range(shape.layer_count)),
            output_mix=self._mix(shape.streams),
            output_norm=self._ones(shape.embedding_width),
            output=self._coded(shape.embedding_width, shape.vocabulary_size),
            magnitudes=self._device.upload(iq2_grid().view("<u4")),
        )

    def _layer(self, index: int) -> LayerWeights:
        shape, ratio = self._shape, self._shape.compress_ratios[index]
        width, groups = shape.embedding_width, shape.output_groups
        heads, table = shape.head_count * shape.head_dim, (shape.vocabulary_size, shape.experts_used)
        numbers = self._random.integers(0, shape.expert_count, table).astype(np.int32)
        return LayerWeights(
            ratio=ratio,
            attention_mix=self._mix(shape.mix_width),
            feed_forward_mix=self._mix(shape.mix_width),
            attention_norm=self._ones(width),
            query_key_value_down=self._coded(width, shape.query_rank + shape.head_dim),
            query_norm=self._ones(shape.query_rank),
            query_up=self._coded(shape.query_rank, heads),
            key_value_norm=self._ones(shape.head_dim),
            sinks=self._device.zeros((shape.head_count,), np.float32),
            output_down=self._coded(heads // groups, groups * shape.output_rank),
            output_up=self._coded(groups * shape.output_rank, width),
            compressor=self._compressor(ratio) if ratio else None,
            feed_forward_norm=self._ones(width),
            router=self._half(width, shape.expert_count),
            router_bias=self._device.zeros((shape.expert_count,), np.float32),
            expert_table=self._device.upload(numbers) if index < shape.hash_layers else None,
            experts=self._experts(),
            shared_gate_up=self._coded(width, 2 * shape.expert_width),
            shared_down=self._coded(shape.expert_width, width),
        )

    def _compressor(self, ratio: int) -> Compressor:
        shape, indexed = self._shape, ratio == 4
        norm = self._ones(shape.head_dim)
        return Compressor(
            project=self._half(shape.embedding_width, compressor_columns(shape, ratio)),
            positional=self._half_numbers(ratio, sum(frontier_widths(shape, ratio))),
            norm=norm,
            index_norm=self._ones(shape.index_dim) if indexed else norm,
            index_query=self._half(shape.query_rank, shape.index_heads * shape.index_dim)
            if indexed
            else None,
        )

    def _experts(self) -> Experts:
        shape, of_in, of_down = self._shape, TensorType.IQ2_XXS, TensorType.Q2_K
        width, inner = shape.embedding_width, shape.expert_width
        gate, up = (self._expert_rows(of_in, shape.expert_count * inner, width) for _ in range(2))
        down = self._expert_rows(of_down, shape.expert_count * width, inner)
        return Experts(gate, up, down, of_in, of_down)

    def _expert_rows(self, kind: TensorType, rows: int, columns: int) -> Any:
        made = self._device.empty((rows, columns // block_elements(kind) * block_bytes(kind)), np.uint8)
        places, scale = _SCALES[kind]
        self._fill(made, block_bytes(kind) // 2, places, scale)
        return made

    def _coded(self, inputs: int, outputs: int) -> Matrix:
        codes = self._device.empty((outputs, inputs), np.int8)
        scales = self._device.empty((outputs, inputs // 32), np.uint16)
        self._fill(codes, 1, (-1, -1), 0)
        self._fill(scales, 1, (0, -1), inputs**-0.5 / _CODE_SPREAD)
        return Matrix("q8_0", codes, scales, inputs, outputs)

    def _half(self, inputs: int, outputs: int) -> Matrix:
        halves = self._half_numbers(outputs, inputs)
        return Matrix("f16", halves, halves, inputs, outputs)

    def _mix(self, outputs: int) -> HyperConnection:
        mix = self._half_numbers(outputs, self._shape.streams * self._shape.embedding_width)
        return HyperConnection(mix, self._ones(outputs), self._device.zeros((outputs,), np.float32))

    def _half_numbers(self, rows: int, columns: int) -> Any:
        """Of which a row times `columns` numbers of size 1 is of size 1."""
        made, size = self._device.empty((rows, columns), np.uint16), (3 / columns) ** 0.5
        self._halves(_grid(made.size), _THREADS, made, np.uint64(made.size), np.float32(size), self._next())
        return made

    def _fill(self, to: Any, period: int, places: tuple[int, int], scale: float) -> None:
        count = to.nbytes // 2
        bits = np.float16(scale).view(np.uint16)
        numbers = (np.int32(period), *map(np.int32, places), np.int32(bits), self._next())
        self._blocks(_grid(count), _THREADS, to, np.uint64(count), *numbers)

    def _ones(self, count: int) -> Any:
        return self._device.upload(np.ones(count, np.float32))

    def _next(self) -> np.uint32:
        self._seed += 1
        return np.uint32(self._seed * 0x9E3779B1 & 0xFFFFFFFF)


def _grid(count: int) -> tuple[int]:
    return (min(_MOST_BLOCKS, blocks_for(count, _THREADS)),)
