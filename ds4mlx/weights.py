"""The model's weights as MLX arrays, named after the paper, and how they are read from a file.

Matrices that multiply the same input stand side by side in one, so that a step has fewer operations.
Must not know: the forward pass, sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from ds4mlx.adoption import TensorBytes
from ds4mlx.arrays import arrays
from ds4mlx.experts import ExpertStore, RawExperts, expand, pack_mxfp4
from ds4mlx.linear import FloatMatrix, HalfMatrix, Matrix, PackedMatrix, pack_q8_0, stack_outputs
from ds4mlx.plan import Storage
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.model.shape import ModelShape
from shared.quant.dequantise import dequantise, integers

LoadProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class HyperConnection:
    """Mix of the streams: `mix` [outputs, streams * width], float16 as in the file or float32; `scale` and
    `base` float32 [outputs]."""

    mix: mx.array
    scale: mx.array
    base: mx.array


@dataclass(frozen=True, slots=True)
class Compressor:
    """Everything that a compressed layer computes from the attention input besides queries and rows.

    `project` gives [kv | score] of width 2 * k * D for the attention compressor, on ratio-4 layers
    followed by those of the index compressor and by the index head weights. `positional` float32
    [ratio, frontier width] is added to a token's frontier row.
    """

    project: Matrix
    positional: mx.array
    norm: mx.array
    index_norm: mx.array | None
    index_query: Matrix | None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    ratio: int
    attention_mix: HyperConnection
    feed_forward_mix: HyperConnection
    attention_norm: mx.array
    query_key_value_down: Matrix  # [query rank | head dim] outputs
    query_norm: mx.array
    query_up: Matrix
    key_value_norm: mx.array
    sinks: mx.array  # float32 [heads]
    output_down: Matrix  # one matrix per group
    output_up: Matrix
    compressor: Compressor | None
    feed_forward_norm: mx.array
    router: Matrix
    router_bias: mx.array | None  # float32 [experts]
    expert_table: mx.array | None  # int32 [vocabulary, experts used], hash-routed layers
    experts: ExpertStore
    shared_gate_up: Matrix
    shared_down: Matrix


@dataclass(frozen=True, slots=True)
class Weights:
    embedding: mx.array  # float16 [vocabulary, width]
    layers: tuple[LayerWeights, ...]
    output_mix: HyperConnection
    output_norm: mx.array
    output: Matrix

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays())

    def arrays(self) -> list[mx.array]:
        return list(arrays(self))


class WeightReader:
    """Reads one file's tensors into the layouts of this backend."""

    def __init__(self, gguf: GgufFile, shape: ModelShape, source: TensorBytes, storage: Storage) -> None:
        self._gguf = gguf
        self._shape = shape
        self._source = source
        self._packed = storage.packed
        self._expand = storage.expand_experts

    def read(self, progress: LoadProgress | None = None) -> Weights:
        """All weights, evaluated. `progress` is called with (layers read, layers)."""
        count = self._shape.layer_count
        layers = []
        for index in range(count):
            if progress is not None:
                progress(index, count)
            layers.append(self._layer(index))
            mx.eval(*arrays(layers[-1]))
        if progress is not None:
            progress(count, count)
        data = self._gguf.data("token_embd.weight")
        weights = Weights(
            embedding=mx.array(data.view("<f2").reshape(self._numpy_shape("token_embd.weight"))),
            layers=tuple(layers),
            output_mix=self._hyper_connection("output_hc", (self._shape.streams,)),
            output_norm=self._vector("output_norm.weight"),
            output=self._matrix("output.weight"),
        )
        mx.eval(*weights.arrays())
        return weights

    def _layer(self, index: int) -> LayerWeights:
        shape, prefix = self._shape, f"blk.{index}."
        ratio = shape.compress_ratios[index]
        mix_parts = (shape.streams, shape.streams, shape.streams**2)
        hashed, bias = f"{prefix}ffn_gate_tid2eid.weight", f"{prefix}exp_probs_b.bias"
        is_hashed = index < shape.hash_layers
        return LayerWeights(
            ratio=ratio,
            attention_mix=self._hyper_connection(f"{prefix}hc_attn", mix_parts),
            feed_forward_mix=self._hyper_connection(f"{prefix}hc_ffn", mix_parts),
            attention_norm=self._vector(f"{prefix}attn_norm.weight"),
            query_key_value_down=self._side_by_side(prefix, "attn_q_a", "attn_kv"),
            query_norm=self._vector(f"{prefix}attn_q_a_norm.weight"),
            query_up=self._matrix(f"{prefix}attn_q_b.weight"),
            key_value_norm=self._vector(f"{prefix}attn_kv_a_norm.weight"),
            sinks=self._vector(f"{prefix}attn_sinks.weight"),
            output_down=self._matrix(f"{prefix}attn_output_a.weight", groups=shape.output_groups),
            output_up=self._matrix(f"{prefix}attn_output_b.weight"),
            compressor=self._compressor(prefix, ratio) if ratio else None,
            feed_forward_norm=self._vector(f"{prefix}ffn_norm.weight"),
            router=self._matrix(f"{prefix}ffn_gate_inp.weight"),
            router_bias=None if is_hashed or bias not in self._gguf.tensors else self._vector(bias),
            expert_table=self._expert_table(hashed) if is_hashed else None,
            experts=self._experts(prefix),
            shared_gate_up=self._side_by_side(prefix, "ffn_gate_shexp", "ffn_up_shexp"),
            shared_down=self._matrix(f"{prefix}ffn_down_shexp.weight"),
        )

    def _hyper_connection(self, prefix: str, parts: tuple[int, ...]) -> HyperConnection:
        """`parts`: how many outputs each of the scales belongs to."""
        scales = np.repeat(self._floats(f"{prefix}_scale.weight"), parts)
        mix = self._floats(f"{prefix}_fn.weight")
        # On the CPU a product of few rows is faster with the matrix laid out by columns.
        rows = mx.array(mix.astype(np.float16)) if self._packed else mx.array(np.ascontiguousarray(mix.T)).T
        return HyperConnection(rows, mx.array(scales), self._vector(f"{prefix}_base.weight"))

    def _compressor(self, prefix: str, ratio: int) -> Compressor:
        kinds = ["attn_compressor"]
        names = [f"{prefix}attn_compressor_{part}.weight" for part in ("kv", "gate")]
        if ratio == 4:
            kinds.append("indexer_compressor")
            names += [f"{prefix}indexer_compressor_{part}.weight" for part in ("kv", "gate")]
            names.append(f"{prefix}indexer.proj.weight")
        biases = [self._floats(f"{prefix}{kind}_ape.weight") for kind in kinds]
        positional = np.concatenate([part for bias in biases for part in (np.zeros_like(bias), bias)], axis=1)
        indexed = ratio == 4
        return Compressor(
            project=stack_outputs([self._matrix(name) for name in names]),
            positional=mx.array(positional),
            norm=self._vector(f"{prefix}attn_compressor_norm.weight"),
            index_norm=self._vector(f"{prefix}indexer_compressor_norm.weight") if indexed else None,
            index_query=self._matrix(f"{prefix}indexer.attn_q_b.weight") if indexed else None,
        )

    def _experts(self, prefix: str) -> ExpertStore:
        names = [f"{prefix}ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
        types = [self._gguf.tensors[name].type for name in names]
        gate, up, down = (self._raw_rows(name) for name in names)
        raw = RawExperts(gate, up, down, in_type=types[0], down_type=types[2])
        if self._expand:
            return expand(raw)
        if not raw.in_type is raw.down_type is TensorType.MXFP4:
            return raw
        # MLX has a mode of its own for the blocks that DeepSeek publishes.
        packed = pack_mxfp4(raw)
        mx.eval(*arrays(packed))  # while `raw`, which may show the file, has another owner than the graph
        return packed

    def _raw_rows(self, name: str) -> mx.array:
        info = self._gguf.tensors[name]
        *outer, columns = self._numpy_shape(name)
        row_bytes = columns // block_elements(info.type) * block_bytes(info.type)
        return self._source.rows(name, (*outer, row_bytes))

    def _expert_table(self, name: str) -> mx.array:
        table = integers(self._gguf.data(name), self._numpy_shape(name))
        return mx.array(table)

    def _side_by_side(self, prefix: str, *names: str) -> Matrix:
        return stack_outputs([self._matrix(f"{prefix}{name}.weight") for name in names])

    def _matrix(self, name: str, groups: int = 1) -> Matrix:
        """A [inputs, outputs] matrix, or [groups, inputs, outputs / groups]."""
        outputs, inputs = self._numpy_shape(name)
        kind = self._gguf.tensors[name].type
        data = self._gguf.data(name)
        if self._packed and kind is TensorType.Q8_0:
            matrix = pack_q8_0(data, outputs)
            if groups == 1:
                return matrix
            parts = (matrix.packed, matrix.scales, matrix.biases)
            return PackedMatrix(*(part.reshape(groups, outputs // groups, -1) for part in parts))
        values: npt.NDArray = dequantise(kind, data, (groups, outputs // groups, inputs))
        if self._packed:
            half = values.astype(np.float16)
            return HalfMatrix(mx.array(half if groups > 1 else half[0]))
        values = np.ascontiguousarray(values.swapaxes(1, 2))
        return FloatMatrix(mx.array(values if groups > 1 else values[0]))

    def _vector(self, name: str) -> mx.array:
        return mx.array(self._floats(name).reshape(-1))

    def _floats(self, name: str) -> npt.NDArray[np.float32]:
        kind = self._gguf.tensors[name].type
        return dequantise(kind, self._gguf.data(name), self._numpy_shape(name))

    def _numpy_shape(self, name: str) -> tuple[int, ...]:
        return tuple(reversed(self._gguf.tensors[name].dims))
