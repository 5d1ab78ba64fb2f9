"""The sum of a token's experts, routed and shared, from 8-bit activations.

Contract, for n tokens, E experts of width F of which K are used; codes, scales and sums as of quantise:
`gate_up`: the input's [n, D], gate and up uint8 [E * F, row bytes] (blocks as in the file), chosen int32 [n,
K], shares float32 [n, K] -> hidden float32 [n * K, F] = swiglu(gate x, up x) * share; the input's dense ones
[n, D] and the shared expert's Q8_0 matrix [2 * F, D] -> its hidden vectors float32 [n, F].
`down`: the hidden vectors' [n * K, F], down uint8 [E * D, row bytes], the shared expert's hidden vectors'
dense ones [n, F] and its Q8_0 matrix [D, F] -> y float32 [n, D]: the shared expert's output, and those of the
slots in order. Each slot counts, also where a token names an expert twice.
Integer products of 32 weights are exact; a lane sums every 32nd of these in order, then lanes are summed
pairwise. Spec: model §3.1 and §4.8, steps 5 to 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for
from ds4cuda.kernels.quantise import EXPERT_BLOCK, DenseCodes, ExpertCodes
from ds4cuda.kernels.run_experts import BLOCK_TYPE
from shared.gguf.types import TensorType

GATE_UP = Kernel("gate_up8", Path(__file__).parent / "gate_up.cu")
DOWN = Kernel("down8", Path(__file__).parent / "down.cu")
THREADS = 128
WARPS = THREADS // 32
ROWS = 4  # of a warp
# What multiplies a block of each type, in place of that.
BLOCK_HEADERS = {
    TensorType.IQ2_XXS: "iq2_xxs8.cuh",
    TensorType.Q2_K: "q2_k8.cuh",
    TensorType.Q4_K: "q4_k8.cuh",
    TensorType.MXFP4: "mxfp4_8.cuh",
}


@dataclass(frozen=True, slots=True)
class Experts8:
    """`gate_up(experts, table, x, chosen, shares, hidden, shared_gate_up, dense x, shared_hidden)` and
    `down(experts, table, chosen, hidden, shared_down, shared_hidden, y)`, `table` the magnitudes of IQ2_XXS,
    uint32 [256, 2]."""

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
) -> Experts8:
    """Raises ValueError for widths that are not whole blocks of codes."""
    if width % EXPERT_BLOCK or expert_width % EXPERT_BLOCK:
        raise ValueError(f"8-bit activations take widths in multiples of 256, not {width} and {expert_width}")
    sizes = {"WIDTH": width, "EXPERT_WIDTH": expert_width, "USED": used, "THREADS": THREADS, "ROWS": ROWS}
    of_in, of_down = BLOCK_HEADERS[in_type], BLOCK_HEADERS[down_type]
    launch_gate_up = GATE_UP.replacing(BLOCK_TYPE, of_in).specialise(modules, CLAMP=float(clamp), **sizes)
    launch_down = DOWN.replacing(BLOCK_TYPE, of_down).specialise(modules, **sizes)

    def gate_up(
        experts: Any,
        table: Any,
        x: ExpertCodes,
        chosen: Any,
        shares: Any,
        hidden: Any,
        shared_gate_up: Any,
        dense: DenseCodes,
        shared_hidden: Any,
    ) -> None:
        grid = (blocks_for(expert_width, WARPS * ROWS), used + 1, chosen.shape[0])
        routed = (experts.gate, experts.up, table, x.codes, x.scales, x.sums, chosen, shares, hidden)
        shared = (shared_gate_up.weights, shared_gate_up.scales, dense.codes, dense.scales, shared_hidden)
        launch_gate_up(grid, THREADS, *routed, *shared)

    def down(
        experts: Any,
        table: Any,
        chosen: Any,
        hidden: ExpertCodes,
        shared_down: Any,
        shared_hidden: DenseCodes,
        y: Any,
    ) -> None:
        grid = (blocks_for(width, WARPS * ROWS), chosen.shape[0])
        codes = (hidden.codes, hidden.scales, hidden.sums)
        shared = (shared_down.weights, shared_down.scales, shared_hidden.codes, shared_hidden.scales)
        launch_down(grid, THREADS, experts.down, table, chosen, *codes, *shared, y)

    return Experts8(gate_up, down)
