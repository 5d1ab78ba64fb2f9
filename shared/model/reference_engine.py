"""The reference engine: the NumPy forward pass behind the `Engine` protocol. Slow, and meant to be right."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from shared.abilities.controls import Control
from shared.errors import ModelFileError
from shared.expert_watch import ExpertWatch
from shared.model.file_engine import FileEngine
from shared.model.memory import DEFAULT_PREFILL_CHUNK, memory_plan, prefill_cap
from shared.model.open import ModelFile, open_model
from shared.model.reference import Activation, Array, Reference
from shared.model.reference_controls import ControlledReference
from shared.model.reference_session import ReferenceSession
from shared.model.reference_weights import ReferenceWeights
from shared.power import PowerGovernor
from shared.session import MemoryPlan, MemoryPlanner
from shared.steering.directions import Component
from shared.steering.steering import Steering


def planner(model: ModelFile, prefill_chunk: int | None = None) -> MemoryPlanner:
    """The memory plans of `model`: weights stay in the mapped file."""
    return partial(
        memory_plan,
        model.shape,
        weights=model.weight_bytes,
        prefill_chunk=DEFAULT_PREFILL_CHUNK if prefill_chunk is None else prefill_chunk,
        attention_row_bytes=4,
    )


def load(
    path: str | os.PathLike[str],
    *,
    prefill_chunk: int | None = None,
    activation: Activation = "kv",
    dense_index_rows: int = 0,
    effort_profile: str = "auto",
    power: int = 100,
) -> ReferenceEngine:
    """Open a model file for the reference. Raises ModelFileError.

    `activation` is "kv" for the model's own rounding, "float" for none, "actq" for 8-bit activations too.
    Up to `dense_index_rows` compressed rows a decode step attends to all of them. Both are for diagnosis.
    """
    model = open_model(path, effort_profile=effort_profile)
    try:
        return ReferenceEngine(
            model,
            prefill_chunk=prefill_chunk,
            activation=activation,
            dense_index_rows=dense_index_rows,
            power=power,
        )
    except ModelFileError:
        model.close()
        raise


class ReferenceEngine(FileEngine):
    """Implements `shared.session.Engine`; weights are dequantised on first use."""

    backend = "reference"

    def __init__(
        self,
        model: ModelFile,
        *,
        prefill_chunk: int | None = None,
        activation: Activation = "kv",
        dense_index_rows: int = 0,
        power: int = 100,
    ) -> None:
        super().__init__(
            model,
            prefill_chunk=DEFAULT_PREFILL_CHUNK if prefill_chunk is None else prefill_chunk,
            power=PowerGovernor(power),
            notes=list(model.notes),
        )
        weights = ReferenceWeights(model.gguf, model.shape)
        self._reference = Reference(weights, model.shape, activation, dense_index_rows)

    def _new_session(self, context: int) -> ReferenceSession:
        return self._session(self._reference, context)

    def open_watched_session(self, context: int, watch: ExpertWatch) -> ReferenceSession:
        return self._session(self._reference.watched(watch), context)

    def open_controlled_session(self, context: int, control: Control) -> ReferenceSession:
        return self._session(ControlledReference(self._reference, control), context)

    def _session(self, reference: Reference, context: int) -> ReferenceSession:
        if context < 1:
            raise ValueError(f"a context holds at least one token, not {context}")
        return ReferenceSession(reference, self.power, context, prefill_cap(context, self.prefill_chunk))

    def memory_plan(self, context: int) -> MemoryPlan:
        """Bytes for a session of `context` tokens; compressed rows are float32 here."""
        return planner(self._file, self.prefill_chunk)(context)

    def _use_steering(self, steering: Steering | None) -> None:
        self._reference.steering = steering

    @contextmanager
    def _recorded(self, component: Component) -> Iterator[Callable[[], Array]]:
        rows = [np.zeros(0, np.float32)] * self.shape.layer_count

        def watch(layer: int, watched: Component, output: Array) -> None:
            if watched == component:
                rows[layer] = output[-1].copy()

        self._reference.watch_outputs = watch
        try:
            yield lambda: np.stack(rows)
        finally:
            self._reference.watch_outputs = None
