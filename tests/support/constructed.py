"""Weights made up by a test, in the place of a model file's, for the NumPy reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


class ConstructedWeights:
    """Tensors by name, experts by (layer, part, expert); all that a test does not give is missing."""

    def __init__(self, **given: Any) -> None:
        self.tensors: dict[str, Array] = given.get("tensors", {})
        self.experts: dict[tuple[str, int], Array] = given.get("experts", {})
        self.bias: Array | None = given.get("bias")
        self.table: npt.NDArray[np.int64] | None = given.get("table")

    def tensor(self, name: str) -> Array:
        return self.tensors[name]

    def layer(self, layer: int) -> Callable[[str], Array]:
        return lambda suffix: self.tensors[suffix]

    def expert(self, layer: int, part: str, expert: int) -> Array:
        return self.experts[part, expert]

    def router_bias(self, layer: int) -> Array:
        assert self.bias is not None
        return self.bias

    def hashed_experts(self, layer: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        assert self.table is not None
        return self.table[tokens]
