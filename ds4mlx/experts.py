"""The routed experts of one layer: clamped SwiGLU over selected weight matrices.

Two storages: raw quantised blocks, expanded per selected expert on use, and float32 matrices for models
small enough to keep all of them expanded. Must not know: how experts are chosen, layers, files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx
import numpy as np

from ds4mlx.dequantise import dequantise
from ds4mlx.product import multiply
from shared.gguf.types import TensorType

# Up to this many (token, slot) pairs each pair fetches its own expert on the device, without asking the
# host; beyond it tokens are grouped by expert, which reads every expert once.
_LARGEST_GATHER = 32


def clamped_swiglu(gate_up: mx.array, clamp: float) -> mx.array:
    """silu(min(gate, clamp)) times up within +-clamp, of gate and up side by side [..., 2 width]; a clamp of
    1e-6 or less does not act."""
    clamps = clamp > 1e-6
    gate, up = mx.split(mx.minimum(gate_up, clamp) if clamps else gate_up, 2, axis=-1)
    return gate * mx.sigmoid(gate) * (mx.maximum(up, -clamp) if clamps else up)


class ExpertStore(Protocol):
    """Expert matrices of one layer."""

    def one(self, expert: int) -> tuple[mx.array, mx.array]:
        """Gate and up side by side, float32 [inputs, 2 width], and down, float32 [width, inputs]."""
        ...

    def project_in(self, x: mx.array, experts: mx.array) -> mx.array:
        """Gate and up of each pair's own expert: x [pairs, 1, inputs] -> [pairs, 1, 2 width]."""
        ...

    def project_out(self, hidden: mx.array, experts: mx.array) -> mx.array:
        """Down of each pair's own expert: hidden [pairs, 1, width] -> [pairs, 1, inputs]."""
        ...


@dataclass(frozen=True, slots=True)
class RawExperts:
    """Quantised blocks as in the file: uint8 [experts, outputs, row bytes] each."""

    gate: mx.array
    up: mx.array
    down: mx.array
    in_type: TensorType
    down_type: TensorType

    def one(self, expert: int) -> tuple[mx.array, mx.array]:
        rows = mx.concatenate([self.gate[expert], self.up[expert]], axis=0)
        return dequantise(self.in_type, rows).T, dequantise(self.down_type, self.down[expert]).T

    def project_in(self, x: mx.array, experts: mx.array) -> mx.array:
        rows = mx.concatenate([mx.take(part, experts, axis=0) for part in (self.gate, self.up)], axis=1)
        return x @ dequantise(self.in_type, rows).swapaxes(1, 2)

    def project_out(self, hidden: mx.array, experts: mx.array) -> mx.array:
        rows = mx.take(self.down, experts, axis=0)
        return hidden @ dequantise(self.down_type, rows).swapaxes(1, 2)


@dataclass(frozen=True, slots=True)
class FloatExperts:
    """Expanded matrices: `gate_up` float32 [experts, inputs, 2 width], `down` [experts, width, inputs]."""

    gate_up: mx.array
    down: mx.array

    def one(self, expert: int) -> tuple[mx.array, mx.array]:
        return self.gate_up[expert], self.down[expert]

    def project_in(self, x: mx.array, experts: mx.array) -> mx.array:
        return mx.gather_mm(x, self.gate_up, rhs_indices=experts)

    def project_out(self, hidden: mx.array, experts: mx.array) -> mx.array:
        return mx.gather_mm(hidden, self.down, rhs_indices=experts)


def expand(raw: RawExperts) -> FloatExperts:
    """All experts of a layer as float32 matrices."""
    pairs = [raw.one(expert) for expert in range(raw.gate.shape[0])]
    expanded = FloatExperts(mx.stack([pair[0] for pair in pairs]), mx.stack([pair[1] for pair in pairs]))
    mx.eval(expanded.gate_up, expanded.down)
    return expanded


def run_experts(
    store: ExpertStore, x: mx.array, experts: mx.array, weights: mx.array, clamp: float
) -> mx.array:
    """Sum over a token's slots of down(swiglu(gate x, up x) * weight).

    x float32 [n, inputs], `experts` int32 and `weights` float32 [n, slots] -> [n, inputs]. Each slot counts,
    also where a token names an expert twice. Spec: model §4.8.
    """
    if experts.size <= _LARGEST_GATHER:
        return _gathered(store, x, experts, weights, clamp)
    return _grouped(store, x, experts, weights, clamp)


def _gathered(
    store: ExpertStore, x: mx.array, experts: mx.array, weights: mx.array, clamp: float
) -> mx.array:
    count, slots = experts.shape
    pairs = x if count == 1 else mx.repeat(x, slots, axis=0)
    pairs = mx.broadcast_to(pairs.reshape(-1, 1, x.shape[1]), (count * slots, 1, x.shape[1]))
    flat = experts.reshape(-1)
    hidden = clamped_swiglu(store.project_in(pairs, flat), clamp) * weights.reshape(-1, 1, 1)
    return store.project_out(hidden, flat).reshape(count, slots, -1).sum(axis=1)


def _grouped(store: ExpertStore, x: mx.array, experts: mx.array, weights: mx.array, clamp: float) -> mx.array:
    count, slots = experts.shape
    flat = np.array(experts).reshape(-1)
    order = np.argsort(flat, kind="stable")
    present, starts = np.unique(flat[order], return_index=True)
    ends = [*starts[1:].tolist(), flat.size]
    sorted_x = mx.take(x, mx.array((order // slots).astype(np.int32)), axis=0)
    sorted_weights = mx.take(weights.reshape(-1, 1), mx.array(order.astype(np.int32)), axis=0)
    pieces = []
    for expert, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
        gate_up, down = store.one(expert)
        projected = multiply(sorted_x[start:end], gate_up, end - start)
        hidden = clamped_swiglu(projected, clamp) * sorted_weights[start:end]
        pieces.append(multiply(hidden, down, end - start))
    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    outputs = mx.take(mx.concatenate(pieces, axis=0), mx.array(back.astype(np.int32)), axis=0)
    return outputs.reshape(count, slots, -1).sum(axis=1)
