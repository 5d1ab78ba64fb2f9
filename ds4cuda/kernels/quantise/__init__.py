"""Activations rounded to 8 bits, as the integer products take them.

Contract: x float32 [n, D] -> for Q8_0 matrices codes int8 [n, D] = rint(x / scale) and scales float32 [n, D
/ 32] = amax / 127; for routed experts codes int8 [n, D] and scales float32 [n, D / 256], where the first
number of largest magnitude, sign included, becomes -127, and sums int16 [n, D / 16] of 16 codes each. Blocks
of zeros have scale 0. Bit for bit the numbers of `shared.quant.activations`. Spec: model §3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules, blocks_for, int32

DENSE = Kernel("quantise_dense", Path(__file__).parent / "dense.cu")
EXPERT = Kernel("quantise_expert", Path(__file__).parent / "expert.cu")
BOTH = Kernel("quantise_both", Path(__file__).parent / "both.cu")
HIDDEN = Kernel("quantise_hidden", Path(__file__).parent / "hidden.cu")
THREADS = 128
WARPS = THREADS // 32
# Numbers that share a scale: before a dense matrix (Q8_0), before routed experts (Q8_K).
DENSE_BLOCK, EXPERT_BLOCK = 32, 256
SUM_OF = 16


@dataclass(frozen=True, slots=True)
class DenseCodes:
    """Activations [n, D] for Q8_0 matrices: `codes` int8 [n, D], `scales` float32 [n, D / 32]."""

    codes: Any
    scales: Any


@dataclass(frozen=True, slots=True)
class ExpertCodes:
    """Activations [n, D] for routed experts: `codes` int8 [n, D], `scales` float32 [n, D / 256], `sums` int16
    [n, D / 16]."""

    codes: Any
    scales: Any
    sums: Any


@dataclass(frozen=True, slots=True)
class Quantise:
    """`dense(x, codes)` and `expert(x, codes)`; in one launch `both(x, dense codes, expert codes)`, and
    `hidden(x, codes, shared x, dense codes)` of two arrays of one width."""

    dense: Callable[[Any, DenseCodes], None]
    expert: Callable[[Any, ExpertCodes], None]
    both: Callable[[Any, DenseCodes, ExpertCodes], None]
    hidden: Callable[[Any, ExpertCodes, Any, DenseCodes], None]


def build(modules: Modules) -> Quantise:
    """D is a multiple of 32, before routed experts of 256."""

    def made(kernel: Kernel) -> Callable[..., None]:
        launch = kernel.specialise(modules, THREADS=THREADS)

        def call(x: Any, *arrays: Any) -> None:
            count, width = x.shape
            launch((blocks_for(width, WARPS * EXPERT_BLOCK), count), THREADS, x, *arrays, int32(width))

        return call

    of_hidden = HIDDEN.specialise(modules, THREADS=THREADS)

    def hidden(x: Any, to: ExpertCodes, shared: Any, to_dense: DenseCodes) -> None:
        pairs, width = x.shape
        grid = (blocks_for(width, WARPS * EXPERT_BLOCK), pairs + shared.shape[0])
        arrays = (x, to.codes, to.scales, to.sums, shared, to_dense.codes, to_dense.scales)
        of_hidden(grid, THREADS, *arrays, int32(width), int32(pairs))

    of_dense, of_expert, of_both = made(DENSE), made(EXPERT), made(BOTH)
    return Quantise(
        dense=lambda x, to: of_dense(x, to.codes, to.scales),
        expert=lambda x, to: of_expert(x, to.codes, to.scales, to.sums),
        both=lambda x, dense, expert: of_both(
            x, dense.codes, dense.scales, expert.codes, expert.scales, expert.sums
        ),
        hidden=hidden,
    )
