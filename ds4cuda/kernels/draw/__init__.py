"""A draw on the device.

Contract: logits float32 [V], allowed uint8 [V] -> token int32 [1]: what `shared.sampling.choose` chooses with
a temperature above 0 among the allowed ones, but for draws within 1e-6 of an edge between two tokens;
`fallback` where no allowed logit is finite. Spec: model §6.1.

Weights, exp((logit - best) / temperature) computed in float64, are whole numbers of units, 2^46 to the best
for 129,280 tokens: sums have no order, and the nearest end of several is the smallest sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ds4cuda.kernels.kernel import Kernel, Modules, int32
from shared.sampling import TOP_K_LIMIT, Sampling

_FOLDER = Path(__file__).parent
BEST = Kernel("draw_best", _FOLDER / "best.cu")
WEIGH = Kernel("draw_weigh", _FOLDER / "weigh.cu")
IN_ORDER = Kernel("draw_in_order", _FOLDER / "in_order.cu")
FROM_TOP = Kernel("draw_from_top", _FOLDER / "from_top.cu")
SLICES = 64
DIGITS = 256  # bins of logits, by eight bits of their order at a time
_SLICE_THREADS = 256
_TOP_THREADS = 1024


@dataclass(frozen=True, slots=True)
class DrawScratch:
    """weights uint64 [V], bests float32 [SLICES], ids int32 [SLICES], sums uint64 [DIGITS], counts int32
    [DIGITS], with any contents."""

    weights: Any
    bests: Any
    ids: Any
    sums: Any
    counts: Any


def build(modules: Modules, *, vocabulary: int, masked: bool) -> Callable[..., None]:
    """-> call(logits, allowed, scratch, token, sampling=, uniform=, fallback=); without a mask any array
    stands for `allowed`."""
    sizes = {"SLICES": SLICES, "UNIT_BITS": 63 - vocabulary.bit_length()}
    slices = {**sizes, "DIGITS": DIGITS, "MASKED": masked, "THREADS": _SLICE_THREADS}
    best = BEST.specialise(modules, **slices)
    weigh = {top: WEIGH.specialise(modules, FROM_TOP=top, **slices) for top in (False, True)}
    in_order = IN_ORDER.specialise(modules, THREADS=_SLICE_THREADS, **sizes)
    from_top = FROM_TOP.specialise(modules, THREADS=_TOP_THREADS, DIGITS=DIGITS, **sizes)

    def call(
        logits: Any,
        allowed: Any,
        scratch: DrawScratch,
        token: Any,
        *,
        sampling: Sampling,
        uniform: float,
        fallback: int,
    ) -> None:
        top_k, top_p = min(max(sampling.top_k, 0), TOP_K_LIMIT), sampling.top_p
        cut = 0 < top_p < 1
        sums, bests = (scratch.sums, scratch.counts), (scratch.bests, scratch.ids)
        size, min_p, draw = int32(vocabulary), np.float64(sampling.min_p), np.float64(uniform)
        best((SLICES,), _SLICE_THREADS, logits, allowed, *bests, *sums, size)
        weights = (scratch.weights, *sums, size, np.float64(sampling.temperature), min_p)
        weigh[cut or top_k > 0]((SLICES,), _SLICE_THREADS, logits, allowed, *bests, *weights)
        if not cut and top_k == 0:
            drawn = (scratch.weights, scratch.sums, *bests, token, size, draw, int32(fallback))
            in_order((1,), _SLICE_THREADS, *drawn)
            return
        numbers = (draw, np.float64(top_p if cut else 1.0), min_p, int32(top_k), int32(fallback))
        from_top((1,), _TOP_THREADS, logits, scratch.weights, *sums, token, size, *numbers)

    return call
