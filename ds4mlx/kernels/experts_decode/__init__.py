"""The routed experts and the shared expert's last matrix for a few tokens, as in decoding.

Contract: y[t] = sum over slots s of down[e] (swiglu(gate[e] x[t], up[e] x[t]) * shares[t, s]) + shared_down
hidden[t] with e = chosen[t, s]; x [n, E], hidden [n, shared width] and y [n, E] float32, chosen int32 [n, K]
within 0 .. X-1, shares float32 [n, K]; gate and up uint8 [X, F, row bytes], down uint8 [X, E, row bytes], raw
blocks of 256; shared_down Q8_0 repacked or float16. Each slot counts, also where a token names an expert
twice. swiglu(g, u) = silu(min(g, clamp)) * u within +-clamp, silu with the precise exponential; a clamp of
1e-6 or less does not act. Spec: model §4.8.

Weights act with their exact values, nothing is rounded below float32. Order of sums: a lane adds every 32nd
part (32 weights) of a row, for an output slot after slot and then every 32nd run of the shared expert; a
simdgroup adds its lanes as the hardware does. So results are the same from run to run and in any company. The
errors of such sums add up like a random walk: a product of weights and numbers is off by less than 8 * 2^-24
times the largest weight times the norm of the numbers, and what passes through SwiGLU likewise.

Two launches, `gate_up` and `down`. A simdgroup computes 2 numbers of the hidden layer (2 rows of gate, 2 of
up) or 4 outputs. Its lanes take neighbouring parts, so that it reads a row's bytes one after the other, and
each number of x that a lane reads serves 4 rows. Four simdgroups are a group: on Flash 1,536 groups a token,
then 256. Weights must begin on 4 bytes, x and hidden on 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx import experts as plain
from ds4mlx.kernels.block_types import (
    BLOCK_WEIGHTS,
    KERNEL_TYPES,
    PART_HEADERS,
    iq2_magnitudes,
    random_blocks,
)
from ds4mlx.kernels.kernel import Example, Kernel, Maker
from ds4mlx.linear import Dimensions, HalfMatrix, PackedMatrix, pack_q8_0

_SIMDGROUPS = 4
_GATE_UP_ROWS = 2
_DOWN_ROWS = 4
_FOLDER = Path(__file__).parent

GATE_UP = {
    type: Kernel(
        name=f"experts_decode_gate_up_{type.name.lower()}",
        body=_FOLDER / "gate_up.metal",
        inputs=("x", "gate", "up", "table", "chosen", "shares"),
        outputs=("activated",),
        functions=(*headers, "block_rows.metal", "block_dots.metal"),
        small=("chosen", "shares"),
    )
    for type, headers in PART_HEADERS.items()
}
DOWN = {
    type: Kernel(
        name=f"experts_decode_down_{type.name.lower()}",
        body=_FOLDER / "down.metal",
        inputs=("activated", "down", "table", "chosen", "hidden", "shared_down", "shared_scales"),
        outputs=("y",),
        functions=(*headers, "block_rows.metal", "block_dots.metal", "q8_0.metal", "f16.metal"),
        small=("chosen",),
    )
    for type, headers in PART_HEADERS.items()
}
KERNELS = (*GATE_UP.values(), *DOWN.values())

SharedDown = PackedMatrix | HalfMatrix
ExpertsDecode = Callable[[mx.array, plain.RawExperts, mx.array, mx.array, mx.array, SharedDown], mx.array]


def fallback(
    x: mx.array,
    store: plain.RawExperts,
    chosen: mx.array,
    shares: mx.array,
    hidden: mx.array,
    shared_down: SharedDown,
    *,
    clamp: float,
) -> mx.array:
    return plain.run_experts(store, x, chosen, shares, clamp) + shared_down(hidden)


def build(
    maker: Maker, *, experts: plain.ExpertDimensions, shared_down: Dimensions, used: int, clamp: float
) -> ExpertsDecode:
    """(x, store, chosen, shares, hidden, shared_down) -> y, for at least one token.

    ValueError for widths that are not whole blocks, for a type without a kernel, and for a `shared_down` that
    is a float32 matrix or does not have the experts' outputs.
    """
    check(experts, shared_down)
    width, expert_width = experts.width, experts.expert_width
    widths = {"SIMDGROUPS": _SIMDGROUPS, "EMBEDDING_WIDTH": width, "EXPERT_WIDTH": expert_width, "USED": used}
    # Spec: a clamp of 1e-6 or less does not act.
    gate_up = GATE_UP[experts.in_type].specialise(
        maker, **widths, ROWS=_GATE_UP_ROWS, CLAMPS=clamp > 1e-6, CLAMP=float(clamp)
    )
    down = DOWN[experts.down_type].specialise(
        maker, **widths, ROWS=_DOWN_ROWS, SHARED_WIDTH=shared_down.inputs
    )
    gate_up_threads = expert_width // _GATE_UP_ROWS * 32
    down_threads = width // _DOWN_ROWS * 32
    group, dtypes, table = (32 * _SIMDGROUPS, 1, 1), (mx.float32,), iq2_magnitudes()

    def experts_decode(
        x: mx.array,
        store: plain.RawExperts,
        chosen: mx.array,
        shares: mx.array,
        hidden: mx.array,
        shared_down: SharedDown,
    ) -> mx.array:
        pairs = chosen.size
        tokens = pairs // used
        activated = gate_up(
            [x, store.gate, store.up, table, chosen, shares],
            ((pairs, expert_width),),
            dtypes,
            (gate_up_threads, pairs, 1),
            group,
        )[0]
        return down(
            [activated, store.down, table, chosen, hidden, *shared_down.operands],
            ((tokens, width),),
            dtypes,
            (down_threads, tokens, 1),
            group,
        )[0]

    return experts_decode


def check(experts: plain.ExpertDimensions, shared_down: Dimensions) -> None:
    """Raises ValueError for dimensions that the kernels do not serve."""
    if experts.width % BLOCK_WEIGHTS or experts.expert_width % BLOCK_WEIGHTS:
        raise ValueError(f"expert matrices are not in whole blocks: {experts}")
    for type in (experts.in_type, experts.down_type):
        if type not in KERNEL_TYPES:
            raise ValueError(f"there is no kernel for experts of type {type.name}")
    if shared_down.storage == "f32" or shared_down.groups > 1 or shared_down.inputs % 32:
        raise ValueError(f"the shared expert is not for kernels: {shared_down}")
    if shared_down.outputs != experts.width:
        raise ValueError(f"experts with different outputs: {experts} and {shared_down}")


def examples() -> Iterator[Example]:
    """Two tokens of a small layer, of each block type."""
    random = np.random.default_rng(9)
    width, count, used, tokens = 256, 4, 3, 2
    shared_blocks = random.integers(0, 256, (width * width // 32, 34), dtype=np.uint8)
    shared_blocks[:, :2] = np.full((1, 1), 0.001, np.float16).view(np.uint8)
    shared_down = pack_q8_0(shared_blocks.reshape(-1), width)
    for type in KERNEL_TYPES:
        gate, up, down = (mx.array(random_blocks(random, (count, width), width, type)) for _ in range(3))
        store = plain.RawExperts(gate, up, down, type, type)
        x, hidden = (mx.array(random.standard_normal((tokens, width), np.float32)) for _ in range(2))
        chosen = mx.array(random.integers(0, count, (tokens, used), np.int32))
        shares = mx.array(random.random((tokens, used), np.float32))
        made = partial(
            build, experts=store.dimensions, shared_down=shared_down.dimensions, used=used, clamp=10.0
        )
        arguments = (x, store, chosen, shares, hidden, shared_down)
        yield Example(f"{tokens} tokens, {type.name}", made, partial(fallback, clamp=10.0), arguments, 1e-5)
