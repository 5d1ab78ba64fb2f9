"""Directions taken out of outputs on the device, and outputs kept to find directions from. Spec: model §7.

Must not know: weights, sessions, what a layer computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import numpy as np

from shared.steering.directions import Array, Component
from shared.steering.steering import Steering


class OutputEdit:
    """What happens to the outputs of a model's blocks: nothing, until one of the methods asks for it.

    A decode step reads it when the step is built, so that another scale counts from the next token on.
    """

    def __init__(self) -> None:
        self._steering: Steering | None = None
        self._directions: mx.array | None = None
        self._recorded: Component | None = None
        self._rows: dict[int, mx.array] = {}

    def __call__(self, layer: int, component: Component, output: mx.array) -> mx.array:
        """The output [n, width] of a layer's component, in its own dtype, as it joins the streams."""
        if component == self._recorded:
            self._rows[layer] = output[-1].astype(mx.float32)
            mx.eval(self._rows[layer])  # else it would hold on to the outputs of all tokens
        if self._steering is None or self._directions is None:
            return output
        scale = self._steering.scale(component)
        return project_out(output, self._directions[layer], scale) if scale else output

    def use(self, steering: Steering | None) -> None:
        """Steer, or no longer."""
        self._steering = steering
        self._directions = None if steering is None else mx.array(steering.directions.values)

    @contextmanager
    def recording(self, component: Component) -> Iterator[None]:
        """Meanwhile `rows` of the last step are kept."""
        self._recorded = component
        try:
            yield
        finally:
            self._recorded = None
            self._rows = {}

    def rows(self) -> Array:
        """What the component gave for the last token, float32 [layers, width]."""
        return np.array(mx.stack([self._rows[layer] for layer in sorted(self._rows)]))


def project_out(output: mx.array, direction: mx.array, scale: float) -> mx.array:
    """y - scale * d * (d . y) of each row y of `output` [n, width], computed in float32 whatever its dtype;
    `direction` float32 [width]."""
    # Not a product of matrices: GPUs may compute those with fewer bits.
    wide = output.astype(mx.float32)
    along = (wide * direction).sum(axis=-1, keepdims=True)
    return (wide - scale * along * direction).astype(output.dtype)
