"""The routed experts of a step of many tokens, from 8-bit activations on tensor cores.

Contract, for n tokens, E experts of width F of which K are used, pairs sorted by sort_pairs into groups of
GROUP: `gate_up` takes x (ExpertCodes of [n, D], see quantise) and shares
float32 [n, K] to hidden float32 [n * K, F] = swiglu(gate x, up x) * share; `down` takes ExpertCodes of
hidden, the scratch outputs float32 [n * K, D], and adds to y float32 [n, D] the outputs of each token's
slots, summed in order. Of a block of 256 inputs the products of codes with integer factors (MXFP4: with
powers of two, in order) are summed exactly; blocks are added in order, so that a sum does not depend on how
pairs are grouped. Spec: model §3.1 and §4.8, step 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds4cuda.kernels.group_experts import ADD
from ds4cuda.kernels.kernel import Kernel, Launch, Modules, blocks_for
from ds4cuda.kernels.quantise import EXPERT_BLOCK, ExpertCodes
from ds4cuda.kernels.run_experts import BLOCK_TYPE
from ds4cuda.kernels.run_experts8 import BLOCK_HEADERS
from shared.gguf.types import TensorType

GATE_UP = Kernel("tile_gate_up", Path(__file__).parent / "gate_up.cu")
DOWN = Kernel("tile_down", Path(__file__).parent / "down.cu")


@dataclass(frozen=True, slots=True)
class _Codes:
    """What of a tile a block type needs, see expert_tile.cuh."""

    factors: bool
    minima: bool
    magnitudes: int = 1

    def tile_bytes(self, vectors: int) -> int:
        """Of shared memory: rows and vectors with their codes and scales, sums and minima of 16, factors."""
        minima = 32 * vectors + 16 * ROWS if self.minima else 32
        factors = 8 * ROWS if self.factors else 16
        table = 8 * (self.magnitudes + self.magnitudes % 2)
        return (ROWS + vectors) * (_PITCH + 8) + minima + factors + table


CODES = {
    TensorType.IQ2_XXS: _Codes(factors=True, minima=False, magnitudes=256),
    TensorType.Q2_K: _Codes(factors=False, minima=True),
    TensorType.Q4_K: _Codes(factors=True, minima=True),
    TensorType.MXFP4: _Codes(factors=True, minima=False),
}
THREADS = 256
ROWS = THREADS // 2  # of a tile: 16 of a warp
# Pairs of a group: more would take registers that a second block of the processor needs.
GROUP = 64
_ADD_THREADS = 256
_PITCH = EXPERT_BLOCK + 16


@dataclass(frozen=True, slots=True)
class TileExperts:
    """`gate_up(experts, table, x, order, groups, shares, hidden)` and `down(experts, table, hidden,
    order, groups, outputs, y)`, `table` the magnitudes of IQ2_XXS, uint32 [256, 2]."""

    gate_up: Callable[..., None]
    down: Callable[..., None]


def build(
    modules: Modules,
    *,
    in_type: TensorType,
    down_type: TensorType,
    width: int,
    expert_width: int,
    used: int,
    clamp: float,
) -> TileExperts:
    """Raises ValueError for widths that are no multiples of 256."""
    if width % EXPERT_BLOCK or expert_width % EXPERT_BLOCK:
        raise ValueError(f"experts of {width} and {expert_width} numbers are no multiples of {EXPERT_BLOCK}")
    sizes = {"WIDTH": width, "EXPERT_WIDTH": expert_width, "THREADS": THREADS, "VECTORS": GROUP}

    def made(kernel: Kernel, kind: TensorType, **constants: int | float) -> tuple[Launch, int]:
        codes = CODES[kind]
        shared = codes.tile_bytes(GROUP)
        constants |= {"FACTORS": codes.factors, "MINIMA": codes.minima, "SHARED_BYTES": shared}
        typed = kernel.replacing(BLOCK_TYPE, BLOCK_HEADERS[kind])
        return typed.specialise(modules, **sizes, **constants), shared

    of_gate_up, gate_up_bytes = made(GATE_UP, in_type, USED=used, CLAMP=float(clamp))
    of_down, down_bytes = made(DOWN, down_type)
    add = ADD.specialise(modules, WIDTH=width, USED=used)

    def gate_up(
        held: Any,
        table: Any,
        x: ExpertCodes,
        order: Any,
        groups: Any,
        shares: Any,
        hidden: Any,
    ) -> None:
        grid = (expert_width // (ROWS // 2), groups.shape[1])
        sorted_pairs = (order, groups[0], groups[1], groups[2])
        arrays = (held.gate, held.up, table, x.codes, x.scales, x.sums, *sorted_pairs, shares, hidden)
        of_gate_up(grid, THREADS, *arrays, shared_bytes=gate_up_bytes)

    def down(
        held: Any,
        table: Any,
        hidden: ExpertCodes,
        order: Any,
        groups: Any,
        outputs: Any,
        y: Any,
    ) -> None:
        grid = (width // ROWS, groups.shape[1])
        sorted_pairs = (order, groups[0], groups[1], groups[2])
        arrays = (held.down, table, hidden.codes, hidden.scales, hidden.sums, *sorted_pairs, outputs)
        of_down(grid, THREADS, *arrays, shared_bytes=down_bytes)
        add((blocks_for(width, _ADD_THREADS), y.shape[0]), _ADD_THREADS, outputs, y)

    return TileExperts(gate_up, down)
