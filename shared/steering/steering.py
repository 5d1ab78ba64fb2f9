"""What steers a model: directions, and how much of each is taken out of the outputs along them.

y <- y - scale * d * (d . y), for every token alike. Spec: model §7. Must not know: engines, files.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace

import numpy as np

from shared.steering.directions import Array, Component, Directions
from shared.steering.scale import check_scale


@dataclass(frozen=True, slots=True, eq=False)
class Steering:
    """A positive scale takes a direction out, a negative one amplifies it, 0 leaves a component alone.

    Raises UsageError for a scale beyond +-100.
    """

    directions: Directions
    attention: float = 0.0
    feed_forward: float = 0.0

    def __post_init__(self) -> None:
        for scale in (self.attention, self.feed_forward):
            check_scale(scale)

    @property
    def active(self) -> bool:
        """Whether anything is changed."""
        return bool(self.attention or self.feed_forward)

    def __str__(self) -> str:
        """To tell it from others, for people."""
        return f"{self.directions.digest[:8]}: ffn {self.feed_forward:g}, attn {self.attention:g}"

    def scale(self, component: Component) -> float:
        return self.attention if component == "attn_out" else self.feed_forward

    def with_feed_forward(self, scale: float) -> Steering:
        """The same with another scale of the experts' output. Raises UsageError."""
        return replace(self, feed_forward=scale)

    def steered(self, layer: int, component: Component, output: Array) -> Array:
        """`output` float32 [n, width] of a layer's component, steered; the array itself where its scale
        is 0."""
        scale = self.scale(component)
        return project_out(output, self.directions.values[layer], scale) if scale else output

    def fingerprint(self, weights: str) -> str:
        """64 hex digits for the states that the weights with this fingerprint come to under this steering:
        those of the weights themselves where nothing is changed."""
        if not self.active:
            return weights
        scales = struct.pack("<dd", self.attention, self.feed_forward)
        return hashlib.sha256(f"{weights} {self.directions.digest} ".encode() + scales).hexdigest()


def project_out(output: Array, direction: Array, scale: float) -> Array:
    """y - scale * d * (d . y) of each row y of `output` float32 [n, width]; `direction` float32 [width]."""
    # A sum over each row by itself: tokens of a batch get what each would get alone.
    along = (output * direction).sum(axis=-1, keepdims=True)
    steered: Array = output - np.float32(scale) * along * direction
    return steered
