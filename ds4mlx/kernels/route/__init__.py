"""Which experts a token goes to, and with what weights. Spec: model §4.8 steps 2 to 4.

Contract: logits float32 [n, X], bias float32 [X] or None; or, for hash-routed layers, table int32 [V, K] and
tokens int32 [n] -> chosen int32 [n, K], shares float32 [n, K]. A row's affinities are sqrt(log(1 + e^logit)).
Without a table the K largest affinity + bias are chosen (of equal sums the lower index), in ascending order;
with one, the token's row as it stands, an expert named twice included. shares = affinity of the chosen /
max(sum of these, 2^-14) * scale: the bias never counts in them. 8 <= X, K <= min(X, 32).

Ties are ties of float32 affinity + bias; equal logits have equal affinities. The affinities of one row are
summed in the order in which experts were chosen (largest first), or stand in the table. Against float64:
affinities and shares 1e-6 of each, for logits from -86 on (e^logit must not be subnormal, or it may count as
0). Logits that are not numbers give experts in range, and nothing else.

Threads: a simdgroup a token, 8 tokens a threadgroup; lane l has experts l, l + 32, ... in registers, and each
of the K choices is a maximum over lanes, then the least index that has it. No threadgroup memory, no
barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx.kernels.kernel import CONSTANT_SPACE_BELOW, Example, Kernel, Maker
from ds4mlx.top_k import top_k_indices

_FOLDER = Path(__file__).parent
_LANES = 32
_TOKENS = 8  # of a threadgroup
_SMALLEST_SUM = 2.0**-14

SCORED = Kernel(
    name="route_scored",
    body=_FOLDER / "scored.metal",
    inputs=("logits", "bias"),
    outputs=("chosen", "shares"),
    functions=("functions.metal",),
)
HASHED = Kernel(
    name="route_hashed",
    body=_FOLDER / "hashed.metal",
    inputs=("logits", "table", "tokens"),
    outputs=("chosen", "shares"),
    functions=("functions.metal",),
    small=("tokens",),
)
KERNELS = (SCORED, HASHED)

Route = Callable[[mx.array, mx.array | None, mx.array | None, mx.array | None], tuple[mx.array, mx.array]]


def fallback(
    logits: mx.array,
    bias: mx.array | None,
    table: mx.array | None,
    tokens: mx.array | None,
    *,
    used: int,
    scale: float,
) -> tuple[mx.array, mx.array]:
    affinities = mx.sqrt(mx.logaddexp(logits, 0.0))
    if table is not None and tokens is not None:
        chosen = mx.take(table, tokens, axis=0)
    else:
        chosen = top_k_indices(affinities if bias is None else affinities + bias, used)
    shares = mx.take_along_axis(affinities, chosen, axis=-1)
    total = mx.maximum(shares.sum(axis=-1, keepdims=True), _SMALLEST_SUM)
    return chosen, shares / total * scale


def build(maker: Maker, *, experts: int, used: int, scale: float) -> Route:
    """The launching function. Raises ValueError for counts that the kernels are not written for."""
    if experts < CONSTANT_SPACE_BELOW:
        raise ValueError(f"the kernels choose among at least {CONSTANT_SPACE_BELOW} experts, not {experts}")
    if not 0 < used <= min(experts, _LANES):
        raise ValueError(f"a token uses 1 to {min(experts, _LANES)} of {experts} experts, not {used}")
    constants = {"EXPERTS": experts, "USED": used, "SCALE": scale, "SMALLEST_SUM": _SMALLEST_SUM}
    scored = SCORED.specialise(maker, TURNS=-(-experts // _LANES), **constants)
    hashed = HASHED.specialise(maker, **constants)
    unbiased = mx.zeros((experts,), mx.float32)
    dtypes, group = (mx.int32, mx.float32), (_LANES, _TOKENS, 1)

    def route(
        logits: mx.array, bias: mx.array | None, table: mx.array | None, tokens: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        count = logits.shape[0]
        shape, threads = (count, used), (_LANES, count, 1)
        if table is not None and tokens is not None:
            chosen, shares = hashed([logits, table, tokens], (shape, shape), dtypes, threads, group)
        else:
            inputs = [logits, unbiased if bias is None else bias]
            chosen, shares = scored(inputs, (shape, shape), dtypes, threads, group)
        return chosen, shares

    return route


def examples() -> Iterator[Example]:
    random = np.random.default_rng(5)
    logits = mx.array(random.standard_normal((3, 40), np.float32) * 4)
    bias = mx.array(random.standard_normal((40,), np.float32))
    table = mx.array(random.integers(0, 40, (6, 6), np.int32))
    tokens = mx.array(np.array([5, 0, 3], np.int32))
    subject = partial(build, experts=40, used=6, scale=1.5)
    plain = partial(fallback, used=6, scale=1.5)
    yield Example("scored", subject, plain, (logits, bias, None, None), 1e-6)
    yield Example("hashed", subject, plain, (logits, None, table, tokens), 1e-6)
