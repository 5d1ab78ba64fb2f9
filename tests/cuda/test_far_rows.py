"""Offsets of weights have 64 bits: contracts hold for rows far behind the first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from shared.gguf.types import TensorType
from tests.cuda import (
    test_dense,
    test_dense8,
    test_experts,
    test_experts8,
    test_tile_experts,
    test_tile_project,
)
from tests.cuda.far_rows import FarModules, Shift
from tests.cuda.on_device import kernel_device, on_device

_ROW = "({} / BLOCK_WEIGHTS) * BLOCK_BYTES"
_INNER, _OUTER = f"EXPERT_WIDTH * {_ROW.format('WIDTH')}", f"WIDTH * {_ROW.format('EXPERT_WIDTH')}"
_POINTERS = {"gate": _INNER, "up": _INNER, "down": _OUTER, "blocks": _OUTER}
CHOSEN = Shift("chosen[pair]", "(chosen[pair] + FAR)", _POINTERS)
GROUPED = Shift("group_expert[blockIdx.y]", "(group_expert[blockIdx.y] + FAR)", _POINTERS)
_DENSE = {"weights": "inputs", "scales": "(inputs / 32)"}
DENSE = Shift("row, rows,", "row + FAR, rows + FAR,", _DENSE)
TILES = Shift(
    "{row, end, row + TILE_ROWS / 2, end}",
    "{row + FAR, end + FAR, row + TILE_ROWS / 2 + FAR, end + FAR}",
    _DENSE,
)
EMBEDDED = Shift("tokens[blockIdx.x]", "(tokens[blockIdx.x] + FAR)", {"embedding": "WIDTH"})
KINDS = (TensorType.IQ2_XXS, TensorType.Q2_K)

OFTEN = ("experts", "dense rows", "embeddings")
# The kernels, how each is changed, and a contract that it is held to.
CASES: dict[str, tuple[tuple[str, ...], Shift, Callable[[Any], None]]] = {
    "experts": (("gate_up", "down"), CHOSEN, partial(test_experts.test_experts, kinds=KINDS)),
    "experts of 8 bits": (
        ("gate_up8", "down8"), CHOSEN, partial(test_experts8.test_experts, kind=TensorType.Q4_K),
    ),
    "grouped experts": (
        ("group_gate_up", "group_down"), GROUPED, partial(test_experts.test_grouped_experts, kinds=KINDS),
    ),
    "experts in tiles": (
        ("tile_gate_up", "tile_down"), GROUPED, partial(test_tile_experts.test_experts_in_tiles, kinds=KINDS),
    ),
    "dense rows": (
        ("project",), DENSE,
        partial(test_dense.test_products, storage="q8_0", count=9, outputs=18, inputs=160, groups=1),
    ),
    "halves": (
        ("project",), DENSE,
        partial(test_dense.test_products, storage="f16", count=1, outputs=37, inputs=96, groups=1),
    ),
    "dense rows of 8 bits": (
        ("project8",), DENSE, partial(test_dense8.test_products, count=9, outputs=18, inputs=160, groups=1),
    ),
    "dense tiles": (
        ("tile_project",), TILES,
        partial(test_tile_project.test_products, count=9, outputs=65, inputs=160, groups=1),
    ),
    "embeddings": (("embed",), EMBEDDED, test_dense.test_embeddings),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [case if case in OFTEN else pytest.param(case, marks=pytest.mark.long) for case in CASES]
)
def test_contracts_hold_far_out(case: str) -> None:
    names, shift, contract = CASES[case]
    far: Any = FarModules(kernel_device(), dict.fromkeys(names, shift))
    contract(far)
    assert far.changed == set(names)


@pytest.mark.skipif(on_device(), reason="a GPU would stop working at the first wrong address")
def test_an_offset_of_32_bits_is_noticed() -> None:
    from tests.ksim import KernelError

    class Narrow(FarModules):
        def function(self, text: str, name: str, options: tuple[str, ...]) -> Any:
            narrow = text.replace("(long long)tokens[blockIdx.x]", "tokens[blockIdx.x]")
            assert narrow != text
            return super().function(narrow, name, options)

    narrow: Any = Narrow(kernel_device(), {"embed": EMBEDDED})
    with pytest.raises((KernelError, AssertionError)):
        test_dense.test_embeddings(narrow)
