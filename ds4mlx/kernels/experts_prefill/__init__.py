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
    if embedding_width % BLOCK_WEIGHTS or expert_width % BLOCK_WEIGHTS:
        raise ValueError(f"expert matrices of {embedding_width} x {expert_width} are not in whole blocks")
    for type in (in_type, down_type):
        if type not in KERNEL_TYPES:
            raise ValueError(f"there is no kernel for experts of type {type.name}")
    tile = mx.float16 if half_hidden else mx.float32
    constants: dict[str, Constant] = {
        "EMBEDDING_WIDTH": embedding_width,
        "EXPERT_WIDTH": expert_width,
        "TOKENS": TOKENS,
        "WEIGHTS": WEIGHTS,
        "DEPTH": DEPTH,
        "TILE": tile,
    }
    sort = build_sort(maker, experts=experts)
    # Spec: a clamp of 1e-6 or less does not act.
    gate_up = GATE_UP[in_type].specialise(
        maker, **constants, USED=used, CLAMPS=clamp > 1e-6, CLAMP=float(clamp)
    )
    multiply_down = DOWN[down_type].specialise(maker, **constants)
    add = ADD.specialise(maker, EMBEDDING_WIDTH=embedding_width, USED=used)
    gate_up_threads = expert_width // (WEIGHTS // 2) * _GROUP
    down_threads = embedding_width // WEIGHTS * _GROUP
    group, hidden_dtypes, float_dtypes = (_GROUP, 1, 1), (tile,), (mx.float32,)
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
        order, tiles = sort(chosen)
        lines = tiles.shape[0]
        hidden = gate_up(
            [x, gate, up, table, order, tiles, shares],
            ((pairs, expert_width),),
            hidden_dtypes,
            (gate_up_threads, lines, 1),
            group,
        )[0]
        parts = multiply_down(
            [hidden, down, table, order, tiles],
            ((pairs, embedding_width),),
            float_dtypes,
            (down_threads, lines, 1),
            group,
        )[0]
        shape = ((tokens, embedding_width),)
        return add([parts, shared], shape, float_dtypes, (embedding_width, tokens, 1), group)[0]

    return experts_prefill


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
