"""The loaded model on the MLX backend, and the way it is loaded.

Must not know: the forward pass, command line options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from ds4mlx.plan import Storage, session_plan
from ds4mlx.settings import prepare_environment, set_wired_limit, touches_weights
from shared.errors import BackendUnavailable, UsageError
from shared.model.file_engine import FileEngine
from shared.model.memory import DEFAULT_PREFILL_CHUNK
from shared.model.open import ModelFile, open_model
from shared.power import PowerGovernor
from shared.session import MemoryPlan, Session
from shared.steering.directions import Array, Component
from shared.steering.steering import Steering

if TYPE_CHECKING:
    from ds4mlx.kernels.kernel import Makers
    from ds4mlx.model import Model
    from shared.expert_watch import ExpertWatch
    from shared.model.reference import Activation


class MlxEngine(FileEngine):
    """Implements `shared.session.Engine`. `quality` keeps in float32 what kernels would hand on in float16;
    array operations are exact either way."""

    backend = "mlx"

    def __init__(
        self,
        model: Model,
        file: ModelFile,
        *,
        prefill_chunk: int,
        quality: bool,
        power: PowerGovernor,
        weight_bytes: int,
        notes: list[str],
    ) -> None:
        super().__init__(file, prefill_chunk=prefill_chunk, power=power, notes=notes)
        self._model = model
        self.quality = quality
        self.weight_bytes = weight_bytes

    def _new_session(self, context: int) -> Session:
        from ds4mlx.session import MlxSession

        return MlxSession(self._model, context, self.prefill_chunk, self.power)

    def open_watched_session(self, context: int, watch: ExpertWatch) -> Session:
        from ds4mlx.session import MlxSession
        from ds4mlx.watched import watched

        return MlxSession(watched(self._model, watch), context, self.prefill_chunk, self.power)

    def memory_plan(self, context: int) -> MemoryPlan:
        return session_plan(
            self.shape,
            context,
            weights=self.weight_bytes,
            prefill_chunk=self.prefill_chunk,
            row_bytes=self._model.row_dtype.size,
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
    prefill_chunk: int | None = None,
    quality: bool = False,
    load: Literal["mmap", "copy"] = "mmap",
    effort_profile: str = "auto",
    power: int = 100,
    activation: Activation = "kv",
    dense_index_rows: int = 0,
    planned_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MlxEngine:
    """Open a model file for this backend. The calling thread owns the engine from now on.

    `load` "mmap" leaves routed experts in the mapped file where Metal can share it. `planned_bytes` are the
    total of the memory plan, which Metal is to keep resident; without one, the weights. For diagnosis:
    `activation` "float" leaves out the model's own rounding, and up to `dense_index_rows` compressed rows a
    decode step attends to all of them. `progress` is called with (layers read, layers).
    Raises UsageError (an activation mode that only the reference has), ModelFileError, BackendUnavailable.
    """
    if activation == "actq":
        raise UsageError("MLX has no 8-bit activations: use --activation kv or float, or --backend reference")
    prepare_environment()
    try:
        import mlx.core as mx
    except ImportError as reason:
        raise BackendUnavailable(f"MLX cannot be imported ({reason})") from None
    from ds4mlx.adoption import TensorBytes
    from ds4mlx.kernel_choice import choose_kernels
    from ds4mlx.model import Model
    from ds4mlx.operations import make_operations
    from ds4mlx.rehearsal import rehearsed
    from ds4mlx.weights import WeightReader

    file = open_model(path, effort_profile=effort_profile)
    try:
        notes = list(file.notes)
        adopt = load == "mmap" and mx.metal.is_available()
        source = TensorBytes(file.gguf, adopt=adopt, notes=notes, touch=touches_weights())
        reader = WeightReader(file.gguf, file.shape, source, Storage.for_device(file.shape))
        weights = reader.read(progress)
        set_wired_limit(mx, weights.nbytes if planned_bytes is None else planned_bytes)

        def with_kernels(makers: Makers) -> Model:
            rounds = activation == "kv"
            operations = make_operations(file.shape, makers, rounds=rounds, quality=quality)
            return Model(weights, file.shape, activation, dense_index_rows, operations)

        kernels = rehearsed(choose_kernels(mx), with_kernels)
        model = with_kernels(kernels.maker)
        notes += kernels.warnings()
        notes += [f"plain operations instead of a kernel: {why}" for why in model.operations.refusals]
    except BaseException:
        file.close()
        raise
    return MlxEngine(
        model,
        file,
        prefill_chunk=DEFAULT_PREFILL_CHUNK if prefill_chunk is None else prefill_chunk,
        quality=quality,
        power=PowerGovernor(power),
        weight_bytes=weights.nbytes,
        notes=notes,
    )
