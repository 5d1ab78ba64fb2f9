"""The routed experts of a prefill step: pairs of token and slot sorted by expert, multiplied tile by tile.

Contract: y[t] = (sum over slots s of down[e] (swiglu(gate[e] x[t], up[e] x[t]) * shares[t, s])) +
shared[t], slots in order, e = chosen[t, s]. x, shared, y float32 [n, E]; chosen int32 [n, K], all within
0 .. X-1; shares float32 [n, K]; gate and up uint8 [X, F, row bytes], down uint8 [X, E, row bytes], raw
blocks of 256 weights. Each slot counts, also where a token names an expert twice. Spec: model 4.8.

Rounding: with `half_hidden` x, the weights and the hidden layer (after clamp, SwiGLU and share) are
float16 in both products, their sums float32; without it everything is float32. Sums run over the channels
in order, in eights as the hardware adds them: a result depends on nothing but its own row, in any
company, run after run.

Four launches, and the host is never asked:
- `sort`, a group an expert: a stable counting sort. `order` has the pairs (token * K + slot) by expert;
  `tiles` has a line (expert, first place in `order`, rows) for each TOKENS pairs of one expert. Expert e
  has the lines from floor(pairs of lower experts / TOKENS) + e on: room enough whatever the counts, and
  known without other groups' tiles. Lines left over have no rows, and groups that find such a line leave
  at once.
- `gate_up`, a group (256 threads) a tile and 64 channels: each round puts 32 channels of 32 tokens and of
  64 gate and 64 up rows into threadgroup memory, each weight expanded once, two threads a row of weights,
  eight a row of x. Each simdgroup multiplies eight channels of gate and the same of up with all tokens,
  in blocks of eight tokens as far as the tile has any. SwiGLU follows on the spot, a simdgroup a row.
  Groups that follow one another have the same tile, so x comes from the cache.
- `down`, alike with 128 output channels; the rows go back to the order of tokens and slots.
- `add`, a thread an output channel of a token.

Memory besides the result, for each pair: 4 E bytes, and 2 F (4 F without `half_hidden`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np

from ds4mlx import experts as plain
from ds4mlx.kernels.block_types import BLOCK_WEIGHTS, KERNEL_TYPES, PIECE_HEADERS, SCALES_AT, iq2_magnitudes
from ds4mlx.kernels.kernel import Constant, Example, Kernel, Maker
from shared.gguf.types import TensorType, block_bytes

# A tile: rows of x, rows of weights, channels a round. The kernels' division of labour rests on these.
TOKENS = 32
WEIGHTS = 128
DEPTH = 32
_GROUP = 256
_FOLDER = Path(__file__).parent
# Scales of the examples' blocks: weights of about 0.1.
_SCALES = {TensorType.IQ2_XXS: 2e-3, TensorType.Q2_K: 6e-3, TensorType.Q4_K: 3e-4}

SORT = Kernel(
    name="experts_prefill_sort",
    body=_FOLDER / "sort.metal",
    inputs=("chosen",),
    outputs=("order", "tiles"),
    small=("chosen",),
)
GATE_UP = {
    type: Kernel(
        name=f"experts_prefill_gate_up_{type.name.lower()}",
        body=_FOLDER / "gate_up.metal",
        inputs=("x", "gate", "up", "table", "order", "tiles", "shares"),
        outputs=("hidden",),
        functions=(*headers, "block_rows.metal", "row_offset.metal", "tiles.metal"),
        small=("order", "tiles", "shares"),
    )
    for type, headers in PIECE_HEADERS.items()
}
DOWN = {
    type: Kernel(
        name=f"experts_prefill_down_{type.name.lower()}",
        body=_FOLDER / "down.metal",
        inputs=("hidden", "down", "table", "order", "tiles"),
        outputs=("parts",),
        functions=(*headers, "block_rows.metal", "row_offset.metal", "tiles.metal"),
        small=("order", "tiles"),
    )
    for type, headers in PIECE_HEADERS.items()
}
ADD = Kernel(
    name="experts_prefill_add",
    body=_FOLDER / "add.metal",
    inputs=("parts", "shared"),
    outputs=("y",),
    functions=("row_offset.metal",),
)
KERNELS = (SORT, *GATE_UP.values(), *DOWN.values(), ADD)

ExpertsPrefill = Callable[[mx.array, mx.array, mx.array, mx.array, mx.array, mx.array, mx.array], mx.array]
Sort = Callable[[mx.array], list[mx.array]]
Hidden = Callable[[mx.array, mx.array, mx.array, mx.array, mx.array], list[mx.array]]
Rows = Callable[[plain.RawExperts, mx.array, mx.array, mx.array], mx.array]


def fallback(
    x: mx.array,
    gate: mx.array,
    up: mx.array,
    down: mx.array,
    chosen: mx.array,
    shares: mx.array,
    shared: mx.array,
    *,
    in_type: TensorType,
    down_type: TensorType,
    clamp: float,
) -> mx.array:
    """All in float32. Asks the host which experts there are."""
    store = plain.RawExperts(gate, up, down, in_type, down_type)
    return plain.run_experts(store, x, chosen, shares, clamp) + shared


def build_sort(maker: Maker, *, experts: int) -> Sort:
    """chosen int32 [n, K] -> order int32 [n * K], tiles int32 [n * K // TOKENS + experts, 3]."""
    launch = SORT.specialise(maker, TOKENS=TOKENS, SIMDGROUPS=_GROUP // 32)
    threads, group = (experts * _GROUP, 1, 1), (_GROUP, 1, 1)
    dtypes = (mx.int32, mx.int32)

    def sort(chosen: mx.array) -> list[mx.array]:
        pairs = chosen.size
        return launch([chosen], ((pairs,), (pairs // TOKENS + experts, 3)), dtypes, threads, group)

    return sort


def build_hidden(
    maker: Maker,
    *,
    embedding_width: int,
    expert_width: int,
    experts: int,
    used: int,
    in_type: TensorType,
    clamp: float,
    half_hidden: bool,
) -> Hidden:
    """(x, gate, up, chosen, shares) -> the hidden layer [n * K, F] of the pairs in `order`, after clamp,
    SwiGLU and share, and `order` and `tiles` (see `build_sort`): the first two launches of `build`."""
    sort = build_sort(maker, experts=experts)
    tile = mx.float16 if half_hidden else mx.float32
    # Spec: a clamp of 1e-6 or less does not act.
    gate_up = GATE_UP[in_type].specialise(
        maker,
        **_tile_constants(embedding_width, expert_width, tile),
        USED=used,
        CLAMPS=clamp > 1e-6,
        CLAMP=float(clamp),
    )
    threads, group, dtypes = expert_width // (WEIGHTS // 2) * _GROUP, (_GROUP, 1, 1), (tile,)
    table = iq2_magnitudes()

    def hidden_rows(
        x: mx.array, gate: mx.array, up: mx.array, chosen: mx.array, shares: mx.array
    ) -> list[mx.array]:
        order, tiles = sort(chosen)
        shape, grid = ((chosen.size, expert_width),), (threads, tiles.shape[0], 1)
        hidden = gate_up([x, gate, up, table, order, tiles, shares], shape, dtypes, grid, group)[0]
        return [hidden, order, tiles]

    return hidden_rows


def build_rows(
    maker: Maker,
    *,
    embedding_width: int,
    expert_width: int,
    experts: int,
    used: int,
    in_type: TensorType,
    clamp: float,
    half_hidden: bool,
) -> Rows:
    """(store, x, chosen, shares) -> the hidden layer float32 [n, K, F] in the order of tokens and slots, for
    whoever looks at it. ValueError as in `build`."""
    check(embedding_width, expert_width, in_type)
    hidden_rows = build_hidden(
        maker,
        embedding_width=embedding_width,
        expert_width=expert_width,
        experts=experts,
        used=used,
        in_type=in_type,
        clamp=clamp,
        half_hidden=half_hidden,
    )

    def rows(store: plain.RawExperts, x: mx.array, chosen: mx.array, shares: mx.array) -> mx.array:
        hidden, order, _ = hidden_rows(x, store.gate, store.up, chosen, shares)
        return mx.take(hidden, mx.argsort(order), axis=0).astype(mx.float32).reshape(*chosen.shape, -1)

    return rows


def build(
    maker: Maker,
    *,
    embedding_width: int,
    expert_width: int,
    experts: int,
    used: int,
    in_type: TensorType,
    down_type: TensorType,
    clamp: float,
    half_hidden: bool,
) -> ExpertsPrefill:
    """(x, gate, up, down, chosen, shares, shared) -> y, for at least one token.

    ValueError for widths that are not whole blocks and for a type without a kernel.
    """
    check(embedding_width, expert_width, in_type, down_type)
    tile = mx.float16 if half_hidden else mx.float32
    hidden_rows = build_hidden(
        maker,
        embedding_width=embedding_width,
        expert_width=expert_width,
        experts=experts,
        used=used,
        in_type=in_type,
        clamp=clamp,
        half_hidden=half_hidden,
    )
    constants = _tile_constants(embedding_width, expert_width, tile)
    multiply_down = DOWN[down_type].specialise(maker, **constants)
    add = ADD.specialise(maker, EMBEDDING_WIDTH=embedding_width, USED=used)
    down_threads = embedding_width // WEIGHTS * _GROUP
    group, float_dtypes = (_GROUP, 1, 1), (mx.float32,)
    table = iq2_magnitudes()

    def experts_prefill(
        x: mx.array,
        gate: mx.array,
        up: mx.array,
        down: mx.array,
        chosen: mx.array,
        shares: mx.array,
        shared: mx.array,
    ) -> mx.array:
        pairs = chosen.size
        tokens = pairs // used
        hidden, order, tiles = hidden_rows(x, gate, up, chosen, shares)
        parts = multiply_down(
            [hidden, down, table, order, tiles],
            ((pairs, embedding_width),),
            float_dtypes,
            (down_threads, tiles.shape[0], 1),
            group,
        )[0]
        shape = ((tokens, embedding_width),)
        return add([parts, shared], shape, float_dtypes, (embedding_width, tokens, 1), group)[0]

    return experts_prefill


def check(embedding_width: int, expert_width: int, *types: TensorType) -> None:
    """Raises ValueError for widths that are not whole blocks and for a type without a kernel."""
    if embedding_width % BLOCK_WEIGHTS or expert_width % BLOCK_WEIGHTS:
        raise ValueError(f"expert matrices of {embedding_width} x {expert_width} are not in whole blocks")
    for type in types:
        if type not in KERNEL_TYPES:
            raise ValueError(f"there is no kernel for experts of type {type.name}")


def _tile_constants(embedding_width: int, expert_width: int, tile: mx.Dtype) -> dict[str, Constant]:
    return {
        "EMBEDDING_WIDTH": embedding_width,
        "EXPERT_WIDTH": expert_width,
        "TOKENS": TOKENS,
        "WEIGHTS": WEIGHTS,
        "DEPTH": DEPTH,
        "TILE": tile,
    }


def examples() -> Iterator[Example]:
    """40 tokens of a small layer, of each block type. Tolerance: float16 has 11 bits, and the fallback does
    not round to it; 6e-4 was measured."""
    random = np.random.default_rng(8)
    width, experts, used, tokens = 256, 4, 2, 40
    for type in KERNEL_TYPES:
        made = partial(
            build,
            embedding_width=width,
            expert_width=width,
            experts=experts,
            used=used,
            in_type=type,
            down_type=type,
            clamp=10.0,
            half_hidden=True,
        )
        expected = partial(fallback, in_type=type, down_type=type, clamp=10.0)
        x, shared = (mx.array(random.standard_normal((tokens, width), np.float32)) for _ in range(2))
        matrices = [_blocks(random, (experts, width), type) for _ in range(3)]
        chosen = mx.array(random.integers(0, experts, (tokens, used), np.int32))
        shares = mx.array(random.random((tokens, used), np.float32))
        arguments = (x, *matrices, chosen, shares, shared)
        yield Example(f"{tokens} tokens, {type.name}", made, expected, arguments, 2e-3)


def _blocks(random: np.random.Generator, rows: tuple[int, ...], type: TensorType) -> mx.array:
    """Rows of one block with random codes."""
    blocks = random.integers(0, 256, (*rows, block_bytes(type)), np.uint8)
    for place in SCALES_AT[type]:
        blocks[..., place : place + 2] = np.array([_SCALES[type]], np.float16).view(np.uint8)
    return mx.array(blocks)
