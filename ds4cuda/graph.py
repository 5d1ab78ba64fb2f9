"""Decode steps as captured graphs: the launches of a step are recorded once and given to the GPU as one.

Launches of a step depend on `Step.end`, `Step.chooses` and on what is steered alone: a graph serves all
positions of its kind.
Must not know: what is launched, tokens.
"""

from __future__ import annotations

import warnings
from typing import Any

from ds4cuda.model import Model
from ds4cuda.state import State
from ds4cuda.step import Step
from shared.steering.directions import Component

# Graphs that a session holds: positions mostly grow, so that kinds used long ago are not needed again.
MOST_GRAPHS = 4


class DecodeSteps:
    """Steps of one token through `state`; the logits after each go to its place of `places` float32 [2,
    vocabulary], as `kernels.keep_logits` says.

    A GPU that cannot capture gets every launch by itself, after one warning.
    """

    def __init__(self, model: Model, state: State, places: Any) -> None:
        self._model = model
        self._state = state
        self._places = places
        self._graphs: dict[tuple[int, bool, frozenset[Component]], Any] = {}

    def run(self, position: int) -> None:
        """The step at `position`, which `Model.begin` told the device. Waits for nothing."""
        step = self._model.step(position, 1)
        kind = (step.end, step.chooses, self._model.edit_output.steered)
        graph = self._graphs.pop(kind, None)
        if graph is None:
            # A kernel must not be loaded while it is captured: the first step of a kind is launched as it is.
            self._launch(step)
            graph = self._captured(step)
        else:
            graph.launch(self._model.device.stream)
        if graph is not None:
            self._graphs[kind] = graph  # as the one used last
        if len(self._graphs) > MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]

    def _launch(self, step: Step) -> None:
        model = self._model
        logits = model.forward(self._state, step)
        model.operations.keep_logits(logits, model.scratch("position", 1), self._places)

    def _captured(self, step: Step) -> Any:
        """The graph of a step, None where it cannot be had."""
        device = self._model.device
        if not device.captures:
            return None
        try:
            return device.capture(lambda: self._launch(step))
        except RuntimeError as reason:
            device.captures = False
            why = f"the GPU does not capture decode steps, which are now launched piece by piece ({reason})"
            warnings.warn(why, RuntimeWarning, stacklevel=2)
            return None
