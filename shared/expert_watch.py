"""What goes through a model's routed experts while it reads, shown to whoever watches: a part of the seam to
backends that a backend may lack. Must not know: why anyone watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from shared.session import Session

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.integer]


class ExpertWatch(Protocol):
    """Called once for each layer of each step, in order."""

    def __call__(self, layer: int, inputs: Array, chosen: Ids, hidden: Array) -> None:
        """`inputs` [n, width]: the normalised vectors that the experts of n tokens multiply; `chosen` [n,
        used]: the experts of each token; `hidden` [n, used, expert width]: what each of them multiplies with
        its last matrix, after clamp, SwiGLU and route weight. Spec: model §4.8."""
        ...


def unwatched(layer: int, inputs: Array, chosen: Ids, hidden: Array) -> None:
    """Nobody watches."""


@runtime_checkable
class WatchableEngine(Protocol):
    """An engine whose experts can be watched."""

    def open_watched_session(self, context: int, watch: ExpertWatch) -> Session:
        """As `open_session`; each prompt that the session evaluates is shown to `watch`, layer by layer, also
        when the step is dropped in the end. Steps of generation need not be shown."""
        ...
