"""The sum of a token's experts, routed and shared.

Contract, for n tokens, E experts of width F of which K are used: x float32 [n, D], gate and up uint8 [E *
F, row bytes], down uint8 [E * D, row bytes] (blocks as in the file), chosen int32 [n, K], shares float32
[n, K], the shared expert's hidden vectors float32 [n, F] and its Q8_0 matrix down [D, F] -> y float32 [n,
D] = sum over slots in order of down(swiglu(gate x, up x) * share), after the shared expert's. hidden
float32 [n * K, F] is scratch. Each slot counts, also where a token names an expert twice. Spec: model
§4.8, steps 5 to 7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for
from shared.gguf.types import TensorType

GATE_UP = Kernel("gate_up", Path(__file__).parent / "gate_up.cu")
DOWN = Kernel("down", Path(__file__).parent / "down.cu")
THREADS = 128
WARPS = THREADS // 32
ROWS = 4  # of a warp
BLOCK_TYPE = "block_type.cuh"
# What multiplies a block of each type, in place of that.
BLOCK_HEADERS = {
    TensorType.IQ2_XXS: "iq2_xxs.cuh",
    TensorType.Q2_K: "q2_k.cuh",
    TensorType.Q4_K: "q4_k.cuh",
    TensorType.MXFP4: "mxfp4.cuh",
}


def build(
    modules: Modules,
    *,
    in_type: TensorType,
    down_type: TensorType,
    width: int,
    expert_width: int,
    used: int,
    clamp: float,
) -> Callable[..., None]:
    """-> call(experts, table, x, chosen, shares, hidden, shared_down, shared_hidden, y), `table` the
    magnitudes of IQ2_XXS, uint32 [256, 2]."""
    sizes = {"WIDTH": width, "EXPERT_WIDTH": expert_width, "USED": used, "THREADS": THREADS, "ROWS": ROWS}
    of_in, of_down = BLOCK_HEADERS[in_type], BLOCK_HEADERS[down_type]
    gate_up = GATE_UP.replacing(BLOCK_TYPE, of_in).specialise(modules, CLAMP=float(clamp), **sizes)
    down = DOWN.replacing(BLOCK_TYPE, of_down).specialise(modules, **sizes)

    def call(
        experts: Any,
        table: Any,
        x: Any,
        chosen: Any,
        shares: Any,
        hidden: Any,
        shared_down: Any,
        shared_hidden: Any,
        y: Any,
    ) -> None:
        count = x.shape[0]
        grid = (blocks_for(expert_width, WARPS * ROWS), used, count)
        gate_up(grid, THREADS, experts.gate, experts.up, table, x, chosen, shares, hidden)
        shared = (shared_down.weights, shared_down.scales, shared_hidden)
        down(
            (blocks_for(width, WARPS * ROWS), count), THREADS, experts.down, table, chosen, hidden, *shared, y
        )

    return call
