"""The model's weights in device memory, named after the paper, and how they are read from a file.

Matrices that multiply the same input stand below one another in one, so that a step has fewer launches. Files
are read in bounded pieces. Must not know: the forward pass, sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ds4cuda.device import Device
from ds4cuda.staging import Bytes, Staging
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.model.shape import ModelShape
from shared.quant.dequantise import dequantise, integers
from shared.quant.iq2 import iq2_grid

LoadProgress = Callable[[int, int], None]
# Host memory that a load takes beside the mapped file, whose pages it lets go of tensor by tensor.
STAGING_BYTES = 64 << 20
_Q8_BLOCK, _Q8_BYTES = 32, 34


@dataclass(frozen=True, slots=True)
class Matrix:
    """[outputs, inputs]: of Q8_0 `weights` are codes int8 and `scales` [outputs, inputs / 32] the bits of
    binary16 numbers, uint16; of binary16 both are the weights' bits. `inputs` are those of one group."""

    storage: Literal["q8_0", "f16"]
    weights: Any
    scales: Any
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class HyperConnection:
    """`mix` binary16 bits [outputs, streams * width]; `scale`, `base` float32 [outputs]."""

    mix: Any
    scale: Any
    base: Any


@dataclass(frozen=True, slots=True)
class Compressor:
    """`project` gives frontier rows, on ratio-4 layers followed by the index head weights; `positional`
    binary16 bits [ratio, frontier width] is added to them."""

    project: Matrix
    positional: Any
    norm: Any
    index_norm: Any
    index_query: Matrix | None


@dataclass(frozen=True, slots=True)
class Experts:
    """Blocks as in the file: uint8 [experts * outputs, row bytes] each."""

    gate: Any
    up: Any
    down: Any
    in_type: TensorType
    down_type: TensorType


@dataclass(frozen=True, slots=True)
class LayerWeights:
    ratio: int
    attention_mix: HyperConnection
    feed_forward_mix: HyperConnection
    attention_norm: Any
    query_key_value_down: Matrix  # query rank outputs, then head dim
    query_norm: Any
    query_up: Matrix
    key_value_norm: Any
    sinks: Any
    output_down: Matrix  # of all groups
    output_up: Matrix
    compressor: Compressor | None
    feed_forward_norm: Any
    router: Matrix
    router_bias: Any  # float32 [experts]
    expert_table: Any | None  # int32 [vocabulary, experts used], hash-routed layers
    experts: Experts
    shared_gate_up: Matrix
    shared_down: Matrix


@dataclass(frozen=True, slots=True)
class Weights:
    embedding: Any  # binary16 bits [vocabulary, width]
    layers: tuple[LayerWeights, ...]
    output_mix: HyperConnection
    output_norm: Any
    output: Matrix
    magnitudes: Any  # of IQ2_XXS, uint32 [256, 2]

    @property
    def nbytes(self) -> int:
        """Device memory; a binary16 matrix names its array twice."""
        return sum({id(array): int(array.nbytes) for array in _arrays(self)}.values())


class WeightReader:
    """Reads one file's tensors into the layouts of this backend."""

    def __init__(self, device: Device, gguf: GgufFile, shape: ModelShape) -> None:
        self._device = device
        self._gguf = gguf
        self._shape = shape
        self._staging = Staging(device, STAGING_BYTES)

    def read(self, progress: LoadProgress | None = None) -> Weights:
        """All weights. `progress` is called with (layers read, layers)."""
        count, layers = self._shape.layer_count, []
        for index in range(count):
            if progress is not None:
                progress(index, count)
            layers.append(self._layer(index))
        weights = Weights(
            embedding=self._halves("token_embd.weight"),
            layers=tuple(layers),
            output_mix=self._hyper_connection("output_hc", (self._shape.streams,)),
            output_norm=self._vector("output_norm.weight"),
            output=self._matrix("output.weight"),
            magnitudes=self._device.upload(iq2_grid().view("<u4")),
        )
        self._staging.finish()
        self._device.synchronize()
        if progress is not None:
            progress(count, count)
        return weights

    def _layer(self, index: int) -> LayerWeights:
        shape, prefix = self._shape, f"blk.{index}."
        ratio = shape.compress_ratios[index]
        mix_parts = (shape.streams, shape.streams, shape.streams**2)
        bias = f"{prefix}exp_probs_b.bias"
        biased, hashed = bias in self._gguf.tensors, index < shape.hash_layers
        no_bias = np.zeros(shape.expert_count, np.float32)
        return LayerWeights(
            ratio=ratio,
            attention_mix=self._hyper_connection(f"{prefix}hc_attn", mix_parts),
            feed_forward_mix=self._hyper_connection(f"{prefix}hc_ffn", mix_parts),
            attention_norm=self._vector(f"{prefix}attn_norm.weight"),
            query_key_value_down=self._matrix(f"{prefix}attn_q_a.weight", f"{prefix}attn_kv.weight"),
            query_norm=self._vector(f"{prefix}attn_q_a_norm.weight"),
            query_up=self._matrix(f"{prefix}attn_q_b.weight"),
            key_value_norm=self._vector(f"{prefix}attn_kv_a_norm.weight"),
            sinks=self._vector(f"{prefix}attn_sinks.weight"),
            output_down=self._matrix(f"{prefix}attn_output_a.weight"),
            output_up=self._matrix(f"{prefix}attn_output_b.weight"),
            compressor=self._compressor(prefix, ratio) if ratio else None,
            feed_forward_norm=self._vector(f"{prefix}ffn_norm.weight"),
            router=self._matrix(f"{prefix}ffn_gate_inp.weight"),
            router_bias=self._vector(bias) if biased else self._device.upload(no_bias),
            expert_table=self._table(f"{prefix}ffn_gate_tid2eid.weight") if hashed else None,
            experts=self._experts(prefix),
            shared_gate_up=self._matrix(f"{prefix}ffn_gate_shexp.weight", f"{prefix}ffn_up_shexp.weight"),
            shared_down=self._matrix(f"{prefix}ffn_down_shexp.weight"),
        )

    def _hyper_connection(self, prefix: str, parts: tuple[int, ...]) -> HyperConnection:
        """`parts`: how many outputs each of the scales belongs to."""
        scales = np.repeat(self._floats(f"{prefix}_scale.weight"), parts)
        return HyperConnection(
            self._halves(f"{prefix}_fn.weight"),
            self._device.upload(scales),
            self._vector(f"{prefix}_base.weight"),
        )

    def _compressor(self, prefix: str, ratio: int) -> Compressor:
        indexed = ratio == 4
        kinds = ["attn_compressor", "indexer_compressor"] if indexed else ["attn_compressor"]
        names = [f"{prefix}{kind}_{part}.weight" for kind in kinds for part in ("kv", "gate")]
        if indexed:
            names.append(f"{prefix}indexer.proj.weight")
        biases = [self._floats(f"{prefix}{kind}_ape.weight") for kind in kinds]
        positional = np.concatenate([part for bias in biases for part in (np.zeros_like(bias), bias)], axis=1)
        norm = self._vector(f"{prefix}attn_compressor_norm.weight")
        return Compressor(
            project=self._matrix(*names),
            positional=self._device.upload(positional.astype(np.float16).view(np.uint16)),
            norm=norm,
            index_norm=self._vector(f"{prefix}indexer_compressor_norm.weight") if indexed else norm,
            index_query=self._matrix(f"{prefix}indexer.attn_q_b.weight") if indexed else None,
        )

    def _experts(self, prefix: str) -> Experts:
        names = [f"{prefix}ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
        types = [self._gguf.tensors[name].type for name in names]
        gate, up, down = (self._raw_rows(name) for name in names)
        return Experts(gate, up, down, in_type=types[0], down_type=types[2])

    def _raw_rows(self, name: str) -> Any:
        info = self._gguf.tensors[name]
        row_bytes = info.dims[0] // block_elements(info.type) * block_bytes(info.type)
        rows = self._device.empty((info.nbytes // row_bytes, row_bytes), np.uint8)
        self._stack((name,), (rows, _whole))
        return rows

    def _matrix(self, *names: str) -> Matrix:
        """The rows of all named tensors, which are of one type, below one another."""
        infos = [self._gguf.tensors[name] for name in names]
        inputs, outputs = infos[0].dims[0], sum(info.dims[1] for info in infos)
        if infos[0].type is TensorType.F16:
            halves = self._device.empty((outputs, inputs), np.uint16)
            self._stack(names, (halves, _whole))
            return Matrix("f16", halves, halves, inputs, outputs)
        codes = self._device.empty((outputs, inputs), np.int8)
        scales = self._device.empty((outputs, inputs // _Q8_BLOCK), np.uint16)
        self._stack(
            names,
            (codes, lambda rows: _q8_blocks(rows)[..., 2:]),
            (scales, lambda rows: _q8_blocks(rows)[..., :2]),
        )
        return Matrix("q8_0", codes, scales, inputs, outputs)

    def _stack(self, names: tuple[str, ...], *parts: tuple[Any, Callable[[Bytes], Bytes]]) -> None:
        """Below one another, the rows of all named tensors; of each row every one of `parts`: where it goes,
        and how it is taken out of the file's rows."""
        first = 0
        for name in names:
            data = self._gguf.data(name)
            count = data.size * len(parts[0][0]) // self._bytes_of(names)
            for to, part in parts:
                self._staging.fill(to[first : first + count], data.reshape(count, -1), part)
            self._gguf.release(name)
            first += count

    def _bytes_of(self, names: tuple[str, ...]) -> int:
        return sum(self._gguf.tensors[name].nbytes for name in names)

    def _halves(self, name: str) -> Any:
        """A binary16 tensor's bits, uint16 [rows, columns]."""
        columns, rows = self._gguf.tensors[name].dims
        halves = self._device.empty((rows, columns), np.uint16)
        self._stack((name,), (halves, _whole))
        return halves

    def _table(self, name: str) -> Any:
        info = self._gguf.tensors[name]
        return self._device.upload(integers(self._gguf.data(name), info.dims[::-1]))

    def _vector(self, name: str) -> Any:
        return self._device.upload(self._floats(name).reshape(-1))

    def _floats(self, name: str) -> npt.NDArray[np.float32]:
        info = self._gguf.tensors[name]
        return dequantise(info.type, self._gguf.data(name), info.dims[::-1])


def _whole(rows: Bytes) -> Bytes:
    return rows


def _q8_blocks(rows: Bytes) -> Bytes:
    return rows.reshape(len(rows), -1, _Q8_BYTES)


def _arrays(part: object) -> Iterator[Any]:
    """All arrays below a dataclass, a tuple or an array."""
    if hasattr(part, "dtype"):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _arrays(item)
    elif is_dataclass(part):
        for item in fields(part):
            yield from _arrays(getattr(part, item.name))
