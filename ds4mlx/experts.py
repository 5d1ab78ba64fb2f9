"""The routed experts of one layer: clamped SwiGLU over selected weight matrices.

Three storages: raw quantised blocks, which kernels read as they are and array operations expand per selected
expert on use; MXFP4 in MLX's own layout; and float32 matrices for models small enough to keep all of them
expanded. Must not know: how experts are chosen, layers, files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from ds4mlx.dequantise import dequantise
from ds4mlx.product import multiply
from shared.gguf.types import TensorType

# Up to this many (token, slot) pairs each pair fetches its own expert on the device, without asking the
# host; beyond it tokens are grouped by expert, which reads every expert once.
LARGEST_GATHER = 32
_MXFP4_BYTES = 17
_MXFP4: Any = {"group_size": 32, "bits": 4, "mode": "mxfp4"}


def clamped_swiglu(gate_up: mx.array, clamp: float) -> mx.array:
    """silu(min(gate, clamp)) times up within +-clamp, of gate and up side by side [..., 2 width]; a clamp of
    1e-6 or less does not act."""
    clamps = clamp > 1e-6
    gate, up = mx.split(mx.minimum(gate_up, clamp) if clamps else gate_up, 2, axis=-1)
    return gate * mx.sigmoid(gate) * (mx.maximum(up, -clamp) if clamps else up)


@dataclass(frozen=True, slots=True)
class ExpertDimensions:
    """All that a kernel has to know of a layer's raw experts beforehand. `width` is that of their inputs and
    outputs, `expert_width` that of their hidden layer."""

    in_type: TensorType
    down_type: TensorType
    count: int
    width: int
    expert_width: int


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

    @property
    def dimensions(self) -> ExpertDimensions:
        count, width, _ = self.down.shape
        return ExpertDimensions(self.in_type, self.down_type, count, width, self.gate.shape[1])

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
class Mxfp4Experts:
    """MXFP4 in MLX's layout, eight codes a word: `gate_up` uint32 [experts, 2 width, inputs / 8] and `down`
    [experts, inputs, width / 8]; `gate_up_scales`, `down_scales` uint8 [..., columns / 32], exponents."""

    gate_up: mx.array
    gate_up_scales: mx.array
    down: mx.array
    down_scales: mx.array

    def one(self, expert: int) -> tuple[mx.array, mx.array]:
        gate_up = mx.dequantize(self.gate_up[expert], self.gate_up_scales[expert], **_MXFP4)
        down = mx.dequantize(self.down[expert], self.down_scales[expert], **_MXFP4)
        return gate_up.astype(mx.float32).T, down.astype(mx.float32).T

    def project_in(self, x: mx.array, experts: mx.array) -> mx.array:
        return mx.gather_qmm(x, self.gate_up, self.gate_up_scales, rhs_indices=experts, **_MXFP4)

    def project_out(self, hidden: mx.array, experts: mx.array) -> mx.array:
        return mx.gather_qmm(hidden, self.down, self.down_scales, rhs_indices=experts, **_MXFP4)


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


def pack_mxfp4(raw: RawExperts) -> Mxfp4Experts:
    """The same weights in MLX's layout: bytes hold neighbours, not elements 16 apart. Spec: model §3.0."""
    gate_up = _neighbours(mx.concatenate([raw.gate, raw.up], axis=1))
    return Mxfp4Experts(*gate_up, *_neighbours(raw.down))


def _neighbours(rows: mx.array) -> tuple[mx.array, mx.array]:
    """Raw MXFP4 rows as words of eight codes, first in the lowest bits, and exponents."""
    blocks = rows.reshape(*rows.shape[:-1], -1, _MXFP4_BYTES)
    pairs = blocks[..., 1:].reshape(*blocks.shape[:-1], 8, 2)
    first, second = pairs[..., 0], pairs[..., 1]
    low, high = (first & 15) | (second << 4), (first >> 4) | (second & 240)
    words = mx.concatenate([low, high], axis=-1).reshape(*rows.shape[:-1], -1).view(mx.uint32)
    return words, mx.contiguous(blocks[..., 0])


def run_experts(
    store: ExpertStore, x: mx.array, experts: mx.array, weights: mx.array, clamp: float
) -> mx.array:
    """Sum over a token's slots of down(swiglu(gate x, up x) * weight).

    x float32 [n, inputs], `experts` int32 and `weights` float32 [n, slots] -> [n, inputs]. Each slot counts,
    also where a token names an expert twice. Spec: model §4.8.
    """
    if experts.size <= LARGEST_GATHER:
        return _gathered(store, x, experts, weights, clamp)
    if isinstance(store, Mxfp4Experts) and _multiplies_quantised():
        return run_sorted(store, x, experts, weights, clamp)
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


def run_sorted(
    store: Mxfp4Experts, x: mx.array, experts: mx.array, weights: mx.array, clamp: float
) -> mx.array:
    """`run_experts` for many tokens by products over all pairs, sorted by expert; does not ask the host."""
    count, slots = experts.shape
    flat = experts.reshape(-1)
    order = mx.argsort(flat)
    flat = flat[order]
    pairs = mx.take(x, order // slots, axis=0)[:, None, :]
    projected = mx.gather_qmm(
        pairs, store.gate_up, store.gate_up_scales, rhs_indices=flat, sorted_indices=True, **_MXFP4
    )
    hidden = clamped_swiglu(projected, clamp) * weights.reshape(-1)[order][:, None, None]
    outputs = mx.gather_qmm(
        hidden, store.down, store.down_scales, rhs_indices=flat, sorted_indices=True, **_MXFP4
    )
    return mx.take(outputs, mx.argsort(order), axis=0).reshape(count, slots, -1).sum(axis=1)


@cache
def _multiplies_quantised() -> bool:
    """Whether MLX multiplies many rows of quantised matrices fast here: on the CPU it does one at a time."""
    return mx.default_device() != mx.Device(mx.cpu)


def expert_rows(
    store: ExpertStore, x: mx.array, experts: mx.array, weights: mx.array, clamp: float
) -> mx.array:
    """What each expert multiplies with its last matrix: swiglu(gate x, up x) * weight of each slot, float32
    [n, slots, width]; the rest as `run_experts`. Asks the host which experts there are."""
    count, slots = experts.shape
    pairs = _Pairs.sorted(x, experts, weights)
    pieces = [pairs.hidden(group, store.one(group[0])[0], clamp) for group in pairs.groups]
    return mx.take(mx.concatenate(pieces, axis=0), pairs.back, axis=0).reshape(count, slots, -1)


def _grouped(store: ExpertStore, x: mx.array, experts: mx.array, weights: mx.array, clamp: float) -> mx.array:
    count, slots = experts.shape
    pairs = _Pairs.sorted(x, experts, weights)
    pieces = []
    for group in pairs.groups:
        gate_up, down = store.one(group[0])
        hidden = pairs.hidden(group, gate_up, clamp)
        pieces.append(multiply(hidden, down, hidden.shape[0]))
    outputs = mx.take(mx.concatenate(pieces, axis=0), pairs.back, axis=0)
    return outputs.reshape(count, slots, -1).sum(axis=1)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of token and slot, sorted by expert: their inputs `x` and `weights` [pairs, 1], `groups` of one
    expert each (expert, first, last + 1), and where each pair of the tokens' own order is (`back`)."""

    x: mx.array
    weights: mx.array
    groups: list[tuple[int, int, int]]
    back: mx.array

    @classmethod
    def sorted(cls, x: mx.array, experts: mx.array, weights: mx.array) -> _Pairs:
        flat = np.array(experts).reshape(-1)
        order = np.argsort(flat, kind="stable")
        present, starts = np.unique(flat[order], return_index=True)
        ends = [*starts[1:].tolist(), flat.size]
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return cls(
            mx.take(x, mx.array((order // experts.shape[1]).astype(np.int32)), axis=0),
            mx.take(weights.reshape(-1, 1), mx.array(order.astype(np.int32)), axis=0),
            list(zip(present.tolist(), starts.tolist(), ends, strict=True)),
            mx.array(back.astype(np.int32)),
        )

    def hidden(self, group: tuple[int, int, int], gate_up: mx.array, clamp: float) -> mx.array:
        """Weighted SwiGLU rows [pairs of the group, width]."""
        _, start, end = group
        projected = multiply(self.x[start:end], gate_up, end - start)
        return clamped_swiglu(projected, clamp) * self.weights[start:end]
