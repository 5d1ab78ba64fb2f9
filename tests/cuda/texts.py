"""Every kernel text that models of the family make, collected without a device."""

from __future__ import annotations

from typing import Any

from ds4cuda.kernels import steer
from ds4cuda.kernels.run_experts import BLOCK_HEADERS
from ds4cuda.operations import make_operations
from ds4cuda.product_operations import make_code_operations, make_float_operations
from shared.model.shape import ModelShape


class Collector:
    """Notes the texts that it is asked to compile: text -> the kernel's name and options."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, tuple[str, ...]]] = {}

    def function(self, text: str, name: str, options: tuple[str, ...]) -> Any:
        self.texts[text] = (name, options)
        return None


def kernel_texts(
    shape: ModelShape, rounding: tuple[bool, ...] = (True, False)
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Texts of all kernels for a shape, for every block type, with both kinds of
    activations, with rounding and without as asked."""
    collector = Collector()
    for rounds in rounding:
        make_operations(collector, shape, rounds=rounds)
    steer.build(collector, width=shape.embedding_width)
    floats, codes = make_float_operations(collector, shape), make_code_operations(collector, shape)
    for kind in BLOCK_HEADERS:
        floats.run_experts(kind, kind)
        floats.group_experts(kind, kind)
        codes.run_experts(kind, kind)
        codes.tile_experts(kind, kind)
    return collector.texts
