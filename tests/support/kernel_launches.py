"""What a step over a model of published dimensions would launch, as MLX traces it.

Nothing is computed, and the weights are never drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.kernels.kernel import Maker  # noqa: E402
from ds4mlx.model import Model  # noqa: E402
from ds4mlx.operations import make_operations  # noqa: E402
from ds4mlx.random_weights import RandomWeights  # noqa: E402
from shared.gguf.types import TensorType  # noqa: E402
from shared.model.shape import ModelShape  # noqa: E402


@dataclass(frozen=True, slots=True)
class Launch:
    """Of a kernel, for the layer of that number; None after the last one."""

    layer: int | None
    operation: str
    kernel: str
    groups: int
    threads: int  # of a group


class LaunchTrace:
    """Traces steps of a model of this shape with all of its operations as kernels."""

    def __init__(self, shape: ModelShape) -> None:
        operations = make_operations(shape, self._maker_of, rounds=True)
        weights = RandomWeights(shape, TensorType.IQ2_XXS, TensorType.Q2_K).draw()
        self._model = Model(weights, shape, operations=operations)
        self._found: list[Launch] = []
        self._layer: int | None = 0

    def launches(self, position: int, count: int = 1) -> list[Launch]:
        """Of the step of `count` tokens from `position`, without what writes it into the state."""
        self._found, self._layer = [], 0
        layers = self._model.shape.layer_count
        state = self._model.open_state(position + count)
        state.position = position

        def layer_done(index: int, _: object) -> None:
            self._layer = index + 1 if index + 1 < layers else None

        def step(tokens: mx.array) -> list[mx.array]:
            return self._model.forward(tokens, state, layer_done).arrays()

        mx.export_function(lambda _: None, step, mx.zeros((count,), mx.int32))
        return self._found

    def _maker_of(self, operation: str) -> Maker:
        def make(**text: Any) -> Callable[..., list[mx.array]]:
            kernel = mx.fast.metal_kernel(**text)
            name = text["name"].removeprefix("ds4_").rpartition("_")[0]

            def launch(**call: Any) -> list[mx.array]:
                group = call["threadgroup"]
                groups = prod(-(-threads // each) for threads, each in zip(call["grid"], group, strict=True))
                self._found.append(Launch(self._layer, operation, name, groups, prod(group)))
                return kernel(**call)

            return launch

        return make
