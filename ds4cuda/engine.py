"""The loaded model on the CUDA backend, and the way it is loaded.

Must not know: the forward pass, command line options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ds4cuda.availability import open_cupy, why_unavailable
from ds4cuda.plan import session_plan
from shared.errors import BackendUnavailable
from shared.model.file_engine import FileEngine
from shared.model.memory import DEFAULT_PREFILL_CHUNK, prefill_cap
from shared.model.open import ModelFile, open_model
from shared.power import PowerGovernor
from shared.session import MemoryPlan, Session
from shared.steering.directions import Array, Component
from shared.steering.steering import Steering

if TYPE_CHECKING:
    from ds4cuda.model import Model
    from ds4cuda.weights import LoadProgress
    from shared.expert_watch import ExpertWatch
    from shared.model.reference import Activation


class CudaEngine(FileEngine):
    """Implements `shared.session.Engine`."""

    backend = "cuda"

    def __init__(
        self, model: Model, file: ModelFile, *, prefill_chunk: int, power: PowerGovernor, notes: list[str]
    ) -> None:
        super().__init__(file, prefill_chunk=prefill_chunk, power=power, notes=notes)
        self._model = model

    def _new_session(self, context: int) -> Session:
        from ds4cuda.session import CudaSession

        return CudaSession(self._model, context, self.prefill_chunk, self.power)

    def open_watched_session(self, context: int, watch: ExpertWatch) -> Session:
        from ds4cuda.watched import WatchedSession

        return WatchedSession(self._model, context, self.prefill_chunk, self.power, watch)

    def memory_plan(self, context: int) -> MemoryPlan:
        return session_plan(
            self.shape,
            context,
            weights=self._model.weights.nbytes,
            prefill_chunk=self.prefill_chunk,
            row_bytes=2 if self._model.rounds else 4,
        )

    def _use_steering(self, steering: Steering | None) -> None:
        self._model.edit_output.use(steering)

    @contextmanager
    def _recorded(self, component: Component) -> Iterator[Callable[[], Array]]:
        with self._model.edit_output.recording(component):
            yield self._model.edit_output.rows


def load(
    path: str | os.PathLike[str],
    *,
    context: int,
    prefill_chunk: int | None = None,
    effort_profile: str = "auto",
    power: int = 100,
    activation: Activation = "kv",
    dense_index_rows: int = 0,
    progress: LoadProgress | None = None,
    cupy: Any = None,
) -> CudaEngine:
    """Open a model file for this backend. The calling thread owns the engine from now on.

    `context` is the longest that sessions will have: no prefill step is longer, and memory for one is
    taken now. `activation` "actq" rounds the inputs of quantised matrices to 8 bits, "kv" keeps them as they
    are. `cupy` stands in for the installed one. For diagnosis: `activation` "float" leaves out the model's
    own rounding, and up to `dense_index_rows` compressed rows a decode step attends to all of them. Raises
    ModelFileError, BackendUnavailable.
    """
    if cupy is None:
        if reason := why_unavailable():
            raise BackendUnavailable(reason)
        cupy = open_cupy()
    from ds4cuda.device import Device
    from ds4cuda.model import Model
    from ds4cuda.weights import WeightReader

    chunk = prefill_cap(context, DEFAULT_PREFILL_CHUNK if prefill_chunk is None else prefill_chunk)
    file = open_model(path, effort_profile=effort_profile)
    try:
        device = Device(cupy)
        weights = WeightReader(device, file.gguf, file.shape).read(progress)
        model = Model(
            device, weights, file.shape, activation, longest_step=chunk, dense_index_rows=dense_index_rows
        )
    except MemoryError as error:
        file.close()
        raise BackendUnavailable(f"the GPU has too little memory for this model ({error})") from None
    except ValueError as error:
        file.close()
        raise BackendUnavailable(f"the CUDA kernels do not take this model: {error}") from None
    except BaseException:
        file.close()
        raise
    return CudaEngine(model, file, prefill_chunk=chunk, power=PowerGovernor(power), notes=list(file.notes))
