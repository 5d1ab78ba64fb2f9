"""A layer's feed-forward output: the routed experts and the shared expert's last matrix.

Contract: run_experts(x, store, chosen, shares, hidden, shared_down) -> y. y[t] = sum over slots s, in order,
of down[e] (swiglu(gate[e] x[t], up[e] x[t]) * shares[t, s]) + shared_down hidden[t] with e = chosen[t, s]; x
[n, E], hidden [n, shared width], shares [n, K] and y [n, E] float32, chosen int32 [n, K] within 0 .. X-1.
`store` holds raw blocks of the built dimensions, `shared_down` is a matrix of the built ones. Spec: model
§4.8.

Up to 32 pairs of token and slot go through `experts_decode` (two launches, all in float32), more through
`experts_prefill` (float16 tiles and hidden layer, unless built with `quality`: float32), where the shared
expert is a product of its own. Exactness, rounding and how threads map to data are told there. Kernels read
IQ2_XXS, Q2_K and Q4_K; other storages go through `fallback`: MXFP4 by MLX's own quantised products, expanded
experts by plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import mlx.core as mx

from ds4mlx import experts as plain
from ds4mlx.kernels import experts_decode, experts_prefill
from ds4mlx.kernels.kernel import Example, Maker
from ds4mlx.linear import Dimensions, Matrix

KERNELS = (*experts_decode.KERNELS, *experts_prefill.KERNELS)

RunExperts = Callable[..., mx.array]


def fallback(
    x: mx.array,
    store: plain.ExpertStore,
    chosen: mx.array,
    shares: mx.array,
    hidden: mx.array,
    shared_down: Matrix,
    *,
    clamp: float,
) -> mx.array:
    """Any storage. Beyond 32 pairs it asks the host which experts there are (MXFP4 on a GPU does not)."""
    return plain.run_experts(store, x, chosen, shares, clamp) + shared_down(hidden)


def build(
    maker: Maker,
    *,
    experts: plain.ExpertDimensions,
    shared_down: Dimensions,
    used: int,
    clamp: float,
    quality: bool = False,
) -> RunExperts:
    """The launching function for raw experts of these dimensions, `used` a token.

    Raises ValueError for widths that are not whole blocks, for a type without a kernel, and for a
    `shared_down` that is a float32 matrix or does not have the experts' outputs.
    """
    decode = experts_decode.build(maker, experts=experts, shared_down=shared_down, used=used, clamp=clamp)
    prefill = experts_prefill.build(
        maker,
        embedding_width=experts.width,
        expert_width=experts.expert_width,
        experts=experts.count,
        used=used,
        in_type=experts.in_type,
        down_type=experts.down_type,
        clamp=clamp,
        half_hidden=not quality,
    )
    largest = plain.LARGEST_GATHER

    def run_experts(
        x: mx.array,
        store: plain.RawExperts,
        chosen: mx.array,
        shares: mx.array,
        hidden: mx.array,
        shared_down: experts_decode.SharedDown,
    ) -> mx.array:
        if chosen.size <= largest:
            return decode(x, store, chosen, shares, hidden, shared_down)
        return prefill(x, store.gate, store.up, store.down, chosen, shares, shared_down(hidden))

    return run_experts


def examples() -> Iterator[Example]:
    """Those of both halves."""
    return chain(experts_decode.examples(), experts_prefill.examples())
