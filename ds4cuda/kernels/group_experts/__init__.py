"""The routed experts of a step of many tokens, pairs of token and slot grouped by expert.

Contract, for n tokens, E experts of width F of which K are used: as run_experts, but that y float32 [n, D]
holds the shared expert's outputs already and the routed ones are added to them. A group is up to 8 pairs
of one expert, which read each of its weights together; within an expert pairs keep their order. Scratch:
`hidden` float32 [n * K, F], `outputs` float32 [n * K, D], `order` int32 [n * K], `groups` int32 [3,
most_groups(n * K, E)] (each group's expert, first place in the order, pairs; those beyond the last have
none). Sums are independent of how pairs are grouped: each is one lane's order, then lanes pairwise. Spec:
model §4.8, step 5.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32
from ds4cuda.kernels.run_experts import BLOCK_HEADERS, BLOCK_TYPE, THREADS, WARPS
from shared.gguf.types import TensorType

SORT = Kernel("sort_pairs", Path(__file__).parent / "sort.cu")
GATE_UP = Kernel("group_gate_up", Path(__file__).parent / "gate_up.cu")
DOWN = Kernel("group_down", Path(__file__).parent / "down.cu")
ADD = Kernel("add_slots", Path(__file__).parent / "add.cu")
GROUP = 8
_SORT_THREADS = 512
_ADD_THREADS = 256


def most_groups(pairs: int, experts: int) -> int:
    """Groups that so many pairs can make: full ones, and one that is not for each expert."""
    return pairs // GROUP + min(pairs, experts)


def build(
    modules: Modules,
    *,
    in_type: TensorType,
    down_type: TensorType,
    width: int,
    expert_width: int,
    experts: int,
    used: int,
    clamp: float,
) -> Callable[..., None]:
    """-> call(experts, table, x, chosen, shares, hidden, outputs, order, groups, y)."""
    sizes = {"WIDTH": width, "EXPERT_WIDTH": expert_width, "GROUP": GROUP, "THREADS": THREADS}
    of_in, of_down = BLOCK_HEADERS[in_type], BLOCK_HEADERS[down_type]
    sort = SORT.specialise(modules, EXPERTS=experts, GROUP=GROUP, THREADS=_SORT_THREADS)
    gate_up = GATE_UP.replacing(BLOCK_TYPE, of_in).specialise(modules, CLAMP=float(clamp), USED=used, **sizes)
    down = DOWN.replacing(BLOCK_TYPE, of_down).specialise(modules, **sizes)
    add = ADD.specialise(modules, WIDTH=width, USED=used)

    def call(
        held: Any,
        table: Any,
        x: Any,
        chosen: Any,
        shares: Any,
        hidden: Any,
        outputs: Any,
        order: Any,
        groups: Any,
        y: Any,
    ) -> None:
        pairs, most = chosen.size, groups.shape[1]
        of_groups = (groups[0], groups[1], groups[2])
        sort((1,), _SORT_THREADS, chosen, order, *of_groups, int32(pairs), int32(most))
        grid = (blocks_for(expert_width, WARPS), most)
        gate_up(grid, THREADS, held.gate, held.up, table, x, order, *of_groups, shares, hidden)
        grid = (blocks_for(width, WARPS), most)
        down(grid, THREADS, held.down, table, order, *of_groups, hidden, outputs)
        add((blocks_for(width, _ADD_THREADS), x.shape[0]), _ADD_THREADS, outputs, y)

    return call
