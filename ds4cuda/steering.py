"""Directions taken out of outputs on the device, and outputs kept to find directions from. Spec: model §7.

Nothing is allocated or compiled before the first use. Must not know: weights, sessions, what layers compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ds4cuda.device import Device
from ds4cuda.kernels import steer
from shared.model.shape import ModelShape
from shared.steering.directions import Array, Component
from shared.steering.steering import Steering

_COMPONENTS: tuple[Component, ...] = ("attn_out", "ffn_out")


class OutputEdit:
    """What happens to the outputs of a model's blocks: nothing, until one of the methods asks for it.

    `steered` are the components with a launch of their own in every step; directions and scales stand at the
    same address as long as the model lives, so that captured steps read the present ones.
    """

    def __init__(self, device: Device, shape: ModelShape) -> None:
        self.steered: frozenset[Component] = frozenset()
        self._device = device
        self._shape = shape
        self._steer: Callable[..., None] | None = None
        self._directions: Any = None
        self._scales: Any = None
        self._recorded: Component | None = None
        self._rows: Any = None

    def __call__(self, layer: int, component: Component, output: Any) -> None:
        """Edit the output float32 [n, width] of a layer's component in place, before it joins the streams."""
        if component == self._recorded:
            self._device.copy(self._rows[layer], output[-1])
        if self._steer is not None and component in self.steered:
            scale = self._scales[_COMPONENTS.index(component)]
            self._steer(self._directions[layer], scale, output)

    def use(self, steering: Steering | None) -> None:
        """Steer, or no longer."""
        if steering is None:
            self.steered = frozenset()
            return
        layers, width = self._shape.layer_count, self._shape.embedding_width
        if self._steer is None:
            self._steer = steer.build(self._device, width=width)
            self._directions = self._device.empty((layers, width), np.float32)
            self._scales = self._device.empty((len(_COMPONENTS), 1), np.float32)
        scales = [steering.scale(component) for component in _COMPONENTS]
        self._device.write(self._directions, steering.directions.values)
        self._device.write(self._scales, np.array(scales, np.float32)[:, None])
        self.steered = frozenset(component for component in _COMPONENTS if steering.scale(component))

    @contextmanager
    def recording(self, component: Component) -> Iterator[None]:
        """Meanwhile `rows` of the last step are kept. Only steps that are not captured may run."""
        self._rows = self._device.empty((self._shape.layer_count, self._shape.embedding_width), np.float32)
        self._recorded = component
        try:
            yield
        finally:
            self._recorded = self._rows = None

    def rows(self) -> Array:
        """What the component gave for the last token, float32 [layers, width]."""
        return self._device.download(self._rows)
