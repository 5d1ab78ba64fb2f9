"""The experts of n tokens and their weights.

Contract, E experts of which K are used: logits float32 [n, E], bias [E], table int32 [V, K], tokens int32
[n] -> chosen int32 [n, K]: the token's row of the table on a hash-routed layer, else the experts with the
largest sqrt(softplus(logit)) + bias, descending, the lower number on ties; shares float32 [n, K]: their
sqrt(softplus) without bias over the sum of these, at least 2^-14, times `scale`. Spec: model §4.8, steps 2
to 4.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4cuda.kernels.kernel import Kernel, Modules

KERNEL = Kernel("route", Path(__file__).parent / "kernel.cu")
_THREADS = 32


def build(modules: Modules, *, experts: int, used: int, scale: float, hashed: bool) -> Callable[..., None]:
    """-> call(logits, bias, table, tokens, chosen, shares). Any arrays stand for the bias of a hash-routed
    layer and the table of another. Raises ValueError where a warp has no lane for each slot."""
    if used > _THREADS:
        raise ValueError(f"routing is written for up to {_THREADS} experts a token, not {used}")
    launch = KERNEL.specialise(modules, EXPERTS=experts, USED=used, WEIGHT_SCALE=float(scale), HASHED=hashed)

    def call(logits: Any, *arrays: Any) -> None:
        launch((logits.shape[0],), _THREADS, logits, *arrays)

    return call
