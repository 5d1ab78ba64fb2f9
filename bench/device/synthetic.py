"""The full-size model of random weights on this GPU: prompts, decoded tokens, kernels, repeatability.

Must not know: how weights are drawn, how times are taken.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

from bench.device.counting import CountedCupy
from bench.device.gpu import Gpu
from bench.device.lengths import Lengths
from bench.device.random_weights import RandomWeights
from bench.device.recipe import fitting_layers
from bench.device.results import Results
from bench.device.timings import decode, kernels, prefill, repeated
from bench.device.traffic import token_bytes
from ds4cuda.availability import free_memory
from ds4cuda.device import Device
from ds4cuda.model import Model
from ds4cuda.plan import session_plan
from ds4cuda.session import CudaSession
from shared.model.reference import Activation
from shared.model.shape import ModelShape
from shared.power import PowerGovernor

# Beside weights and sessions: what compiled kernels and graphs take.
_MARGIN = 1 << 30


def fitting(gpu: Gpu, shape: ModelShape, lengths: Lengths) -> int:
    """Layers of a shape that this GPU holds beside a session."""
    plan = session_plan(shape, lengths.context, weights=0, prefill_chunk=lengths.chunk)
    return fitting_layers(shape, free_memory(gpu.cupy) - plan.total - _MARGIN)


def run(gpu: Gpu, shape: ModelShape, activation: Activation, lengths: Lengths, results: Results) -> None:
    """Measure everything, the most wanted first; what fails is told, and the rest goes on."""
    Measurement(gpu, shape, activation, lengths, results).all()


class Measurement:
    """One model with one session on one GPU."""

    def __init__(
        self, gpu: Gpu, shape: ModelShape, activation: Activation, lengths: Lengths, results: Results
    ) -> None:
        self._lengths = lengths
        self._results = results
        self._cupy = CountedCupy(gpu)
        device, used = Device(self._cupy), gpu.used_memory()
        started = time.perf_counter()
        weights = RandomWeights(device, shape).draw()
        device.synchronize()
        drawn = time.perf_counter()
        self._model = Model(device, weights, shape, activation, longest_step=lengths.chunk)
        self._session = CudaSession(self._model, lengths.context, lengths.chunk, PowerGovernor(100))
        results.put(
            "model",
            value={
                "layers": shape.layer_count,
                "weights": weights.nbytes,
                "drawn in seconds": round(drawn - started, 2),
                "built in seconds": round(time.perf_counter() - drawn, 2),
                "device memory": gpu.used_memory() - used,
            },
        )

    def all(self) -> None:
        lengths, vocabulary = self._lengths, self._model.shape.vocabulary_size
        first, *later = lengths.prefill
        self._measure("prefill", first, prefill, self._model, self._session, first, 30)
        for position in lengths.decode:
            self._measure("decode", position, self._decoded, position)
        self._measure("repeated", "greedy", repeated, self._session, lengths, vocabulary)
        for position in lengths.decode:
            self._measure("kernels of a decode step", position, self._timed, position, 1)
        count = lengths.timed_step
        self._measure("kernels of a prefill step", count, self._timed, count, count)
        for length in later:
            self._measure("prefill", length, prefill, self._model, self._session, length, 60)

    def _decoded(self, position: int) -> dict[str, Any]:
        nbytes = token_bytes(self._model.weights, self._model.shape, position)
        return decode(self._model, self._session, self._cupy, position, self._lengths.decoded, nbytes)

    def _timed(self, position: int, count: int) -> dict[str, Any]:
        rounds = self._lengths.rounds if count == 1 else 1
        return kernels(self._model, self._cupy, position, count, rounds)

    def _measure(self, what: str, of: object, measure: Callable[..., dict[str, Any]], *given: Any) -> None:
        try:
            found = measure(*given)
        except Exception:
            found = {"failed": traceback.format_exc()[-1500:]}
        self._results.put(what, str(of), value=found)
