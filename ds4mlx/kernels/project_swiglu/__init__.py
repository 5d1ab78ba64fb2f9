"""The feed-forward input times the shared expert's gate and up and the router, and the expert's SwiGLU.

Contract: project_swiglu(x float32 [n, inputs], gate_up, router) -> (hidden float32 [n, width], logits float32
[n, experts]). `gate_up` has the outputs [gate | up], 2 * width of them. hidden = silu(min(gate, clamp)) * up
within +-clamp; a clamp of 1e-6 or less does not act. silu(g) = g / (1 + exp(-g)), exponential precise.
Storages, exactness and order of the products are those of `project`; SwiGLU itself adds at most 8 roundings
to a hidden number. One token is one launch. Spec: model §4.8.

Threads: a simdgroup computes 2 hidden numbers from 4 rows, 2 of gate and 2 of up, or 4 logits; see `project`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from ds4mlx.experts import clamped_swiglu
from ds4mlx.kernels.kernel import Example, Kernel, Maker
from ds4mlx.kernels.project import GROUP, LANES, ROWS, check, for_many_tokens, tiles
from ds4mlx.linear import Dimensions, HalfMatrix, Matrix, pack_q8_0

_SMALLEST_CLAMP = 1e-6

KERNEL = Kernel(
    name="project_swiglu",
    body=Path(__file__).parent / "kernel.metal",
    inputs=("x", "gate_up", "gate_up_scales", "router", "router_scales"),
    outputs=("hidden", "logits"),
    functions=("q8_0.metal", "f16.metal", "project_rows.metal"),
)
KERNELS = (KERNEL,)

ProjectSwiglu = Callable[[mx.array, Any, Any], tuple[mx.array, mx.array]]


def fallback(x: mx.array, gate_up: Matrix, router: Matrix, *, clamp: float) -> tuple[mx.array, mx.array]:
    return clamped_swiglu(gate_up(x), clamp), router(x)


def build(maker: Maker, *, gate_up: Dimensions, router: Dimensions, clamp: float) -> ProjectSwiglu:
    """The launching function for matrices of these dimensions.

    Raises ValueError for dimensions that `project` refuses, for groups and for an odd number of gate and up.
    """
    check(gate_up)
    check(router)
    if gate_up.inputs != router.inputs or gate_up.groups * router.groups > 1 or gate_up.outputs % 2:
        raise ValueError(f"gate and up and the router for one input: {gate_up} and {router}")
    width = gate_up.outputs // 2
    hidden_tiles = -(-width // (ROWS // 2))
    launch = KERNEL.specialise(
        maker,
        ROWS=ROWS,
        INPUTS=gate_up.inputs,
        WIDTH=width,
        HIDDEN_TILES=hidden_tiles,
        EXPERTS=router.outputs,
        CLAMPS=clamp > _SMALLEST_CLAMP,
        CLAMP=float(clamp),
    )
    shapes, dtypes = ((1, width), (1, router.outputs)), (mx.float32, mx.float32)
    threads = ((hidden_tiles + tiles(router)) * LANES, 1, 1)
    multiply_gate_up, multiply_router = for_many_tokens(maker, gate_up), for_many_tokens(maker, router)

    def project_swiglu(x: mx.array, gate_up: Any, router: Any) -> tuple[mx.array, mx.array]:
        if x.shape[0] > 1:
            return clamped_swiglu(multiply_gate_up(x, gate_up), clamp), multiply_router(x, router)
        hidden, logits = launch([x, *gate_up.operands, *router.operands], shapes, dtypes, threads, GROUP)
        return hidden, logits

    return project_swiglu


def examples() -> Iterator[Example]:
    random = np.random.default_rng(4)
    blocks = random.integers(0, 256, (2 * 33 * 2, 34), dtype=np.uint8)
    blocks[:, :2] = np.full((1, 1), 0.01, np.float16).view(np.uint8)
    gate_up = pack_q8_0(blocks.reshape(-1), 66)
    router = HalfMatrix(mx.array(random.standard_normal((10, 64), np.float32)).astype(mx.float16))
    for count in (1, 20):
        x = mx.array(random.standard_normal((count, 64), np.float32))
        yield Example(
            label=f"{count} tokens",
            build=partial(build, gate_up=gate_up.dimensions, router=router.dimensions, clamp=10.0),
            fallback=partial(fallback, clamp=10.0),
            arguments=(x, gate_up, router),
            tolerance=2e-5,
        )
