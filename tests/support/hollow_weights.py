"""Weights that have shapes and dtypes and no numbers: the largest models can be traced with them, not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.arrays import rebuilt  # noqa: E402
from ds4mlx.random_weights import RandomWeights  # noqa: E402
from ds4mlx.weights import Weights  # noqa: E402
from shared.gguf.types import TensorType  # noqa: E402
from shared.model.shape import ModelShape  # noqa: E402


def hollow_weights(shape: ModelShape, gate_up: TensorType, down: TensorType) -> Weights:
    """In the storage of a GPU, with routed experts of these block types. Evaluating one of the arrays would
    allocate it; `refilled` puts others in their places."""
    mx.random.seed(1)  # drops what is still to be drawn for earlier weights
    return RandomWeights(shape, gate_up, down).draw()


def refilled(weights: Weights, arrays: Iterator[Any]) -> Weights:
    """`weights` with `arrays`, which stand in the order of `weights.arrays()`, instead of their own."""

    def refill(part: Any) -> Any:
        return next(arrays) if isinstance(part, mx.array) else None

    return cast("Weights", rebuilt(weights, refill))
