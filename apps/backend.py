"""The only place that names the backends: chooses one and opens the engine.

Backends are imported inside functions, so that one that is not installed costs nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from apps.lock import hold_instance_lock
from apps.memory import check_fits, memory_budget
from apps.model_choice import choose_model
from apps.options import BackendName, EngineOptions
from apps.startup import load_progress, plan_line
from apps.steering import steerable
from apps.steering_options import SteeringRequest
from apps.threads import limit_threads
from shared.errors import BackendUnavailable, UsageError
from shared.model.shape import ModelShape
from shared.session import Engine, MemoryPlan, MemoryPlanner
from shared.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from shared.steering.steering import Steering

Backend = Literal["mlx", "cuda", "reference", "scripted"]
Say = Callable[[str], None]
Clock = Callable[[], float]


def open_engine(options: EngineOptions, *, say: Say | None = None, say_plan: Say | None = None) -> Engine:
    """Open the engine that `options` ask for. `say` receives lines for the user (default: stderr),
    `say_plan` (default: `say`) what it will take in memory, before anything is loaded.

    Raises BackendUnavailable, ModelFileError, UsageError, AlreadyRunning, or NotEnoughMemory before
    anything large is allocated.
    """
    say = say or _to_stderr
    limit_threads(options.threads)
    backend = choose_backend(options, say)
    say_plan = say_plan or say
    if backend == "scripted":
        if options.steering is not None:
            raise UsageError("--dir-steering-file: the scripted backend computes nothing to be steered")
        scripted = _open_scripted(options)
        say_plan(plan_line(_for_all_sessions(scripted.memory_plan(options.context), options), backend))
        return scripted
    check_named_backend(backend)
    choice = choose_model(options.model)
    if choice.note:
        say(choice.note)
    plan = _checked_plan(backend, choice.path, options, say_plan)
    steering = _read_steering(choice.path, options.steering)
    hold_instance_lock(choice.path.stat().st_size)
    if options.warm_weights:
        warm(choice.path)
    if backend == "reference":
        engine = _open_reference(choice.path, options)
    elif backend == "cuda":
        engine = _open_cuda(choice.path, options, plan, say)
    else:
        engine = _open_mlx(choice.path, options, plan, say)
    if steering is not None and options.steering is not None:
        steerable(engine).steer(steering)
        say_plan(options.steering.line())
    return engine


def _read_steering(model: Path, request: SteeringRequest | None) -> Steering | None:
    """The directions that were asked for, found to fit the model before it is loaded. Raises UsageError."""
    if request is None:
        return None
    from shared.model.open import open_model
    from shared.steering.directions import read_directions
    from shared.steering.steering import Steering

    with open_model(model) as file:
        directions = read_directions(request.file, file.shape)
    return Steering(directions, attention=request.attention, feed_forward=request.feed_forward)


def _checked_plan(backend: Backend, path: Path, options: EngineOptions, say_plan: Say) -> MemoryPlan:
    """What this machine will need, told and found to fit; before that, the same for the machine that
    `--simulate-memory` imagines. Raises NotEnoughMemory, ModelFileError."""
    chunk, simulated = options.prefill_chunk, options.simulate_memory
    budget = memory_budget(simulated)  # first: a size that means nothing is told before any plan
    _, planned = planner_of_file(backend, path, chunk)
    plan = _for_all_sessions(planned(options.context), options)
    if simulated is None:
        say_plan(plan_line(plan, backend))
    else:
        _, planned_there = planner_of_file(backend, path, chunk, simulated=True)
        there = _for_all_sessions(planned_there(options.context), options)
        say_plan(f"{plan_line(there, backend)} on {simulated_machine(backend, simulated)}")
        check_fits(there, budget, planned_there)
        if there != plan:
            say_plan(f"{plan_line(plan, backend)} on this machine")
    check_fits(plan, _budget_here(backend), planned)
    return plan


def _budget_here(backend: Backend) -> int:
    """Bytes that an engine may use: of the GPU's own memory where that is not the machine's."""
    if backend != "cuda":
        return memory_budget()
    from ds4cuda.availability import free_memory, open_cupy

    return free_memory(open_cupy())


def simulated_machine(backend: Backend, memory: str) -> str:
    """What `--simulate-memory` stands for: MLX runs on the GPU of a Mac there."""
    return f"a {'Mac' if backend == 'mlx' else 'machine'} with {memory} (simulated)"


def planner_of_file(
    backend: Backend, path: Path, prefill_chunk: int | None, *, simulated: bool = False
) -> tuple[ModelShape, MemoryPlanner]:
    """The shape of a model file and what `backend` would take for it with one session of some context, from
    the header alone: here, or on a `simulated` machine. Raises ModelFileError."""
    from shared.model.open import open_model

    with open_model(path) as model:
        if backend == "mlx":
            from ds4mlx.plan import planner as mlx_planner

            return model.shape, mlx_planner(model, prefill_chunk, gpu=simulated)
        if backend == "cuda":
            from ds4cuda.plan import planner as cuda_planner

            return model.shape, cuda_planner(model, prefill_chunk)
        from shared.model.reference_engine import planner

        return model.shape, planner(model, prefill_chunk)


def _for_all_sessions(plan: MemoryPlan, options: EngineOptions) -> MemoryPlan:
    return replace(plan, sessions=options.sessions, checkpoints=options.checkpoint_bytes)


def open_tokenizer(options: EngineOptions, *, say: Say | None = None) -> Tokenizer:
    """The tokenizer that an engine of `options` would have, without its weights."""
    if options.script is not None or options.backend == "scripted":
        return _open_scripted(options).tokenizer
    choice = choose_model(options.model)
    if choice.note:
        (say or _to_stderr)(choice.note)
    from shared.model.open import read_tokenizer

    return read_tokenizer(choice.path)


def choose_backend(options: EngineOptions, say: Say) -> Backend:
    """The backend to use; `auto` is a script if one is given, else MLX if it can run, else the
    reference. A GPU that only the CUDA backend uses is pointed out: that one has to be named as long as it
    was not run on hardware."""
    if options.script is not None and options.backend not in ("auto", "scripted"):
        raise UsageError(f"--script goes with --backend scripted, not {options.backend}")
    if options.backend != "auto":
        return options.backend
    if options.script is not None:
        return "scripted"
    if _importable("cupy") and why_unavailable("cuda") is None:
        say("an NVIDIA GPU is here: --backend cuda uses it")
    reason = why_unavailable("mlx")
    if reason is None:
        return "mlx"
    say(f"using the slow NumPy reference backend: {reason}")
    return "reference"


def check_named_backend(backend: BackendName) -> None:
    """Raises BackendUnavailable for one that cannot be opened here; `auto` finds one that can. Commands that
    wait for input call this before."""
    if backend != "auto" and (reason := why_unavailable(backend)):
        raise BackendUnavailable(reason)


def why_unavailable(backend: Backend) -> str | None:
    """None if `backend` can be opened here, else one line that says why not and what would help."""
    if backend == "cuda":
        from ds4cuda import availability

        return availability.why_unavailable()
    if backend == "mlx" and not _importable("mlx.core"):
        extra = "" if sys.platform == "darwin" else ": install ds4 with its extra `mlx` (see the README)"
        return f"MLX is not installed{extra}"
    return None


def cuda_device() -> str:
    """The GPU that the CUDA backend would use, where it is available."""
    from ds4cuda.availability import device_name, open_cupy

    return device_name(open_cupy())


def kernel_report() -> tuple[list[dict[str, Any]], list[str]]:
    """Each operation of the MLX backend that has kernels: its name, those of its kernels, `status` "kernel"
    or "fallback" on this machine, the `reason` for a fallback, and whether the kernel was `wanted`. Beside
    them names that were to be switched off and that no operation has.

    On a device whose kernels were never tried this tries them, which takes a second or two.
    """
    import mlx.core as mx

    from ds4mlx.kernel_choice import choose_kernels
    from ds4mlx.kernels.registry import operation

    choice = choose_kernels(mx)
    operations = [
        asdict(found) | {"kernels": [kernel.name for kernel in operation(found.operation).KERNELS]}
        for found in choice.statuses
    ]
    return operations, choice.unknown


def kernel_times(context: int, prefill_chunk: int | None, clock: Clock) -> Iterator[dict[str, Any]]:
    """Measured times of the MLX backend's operations in the decode step that ends at `context` and, if
    `prefill_chunk` is given, in a prefill step of so many tokens that ends there: see
    `ds4mlx.costs.measure.measure`.

    Raises BackendUnavailable where there is no Metal.
    """
    if reason := why_unavailable("mlx"):
        raise BackendUnavailable(reason)
    from ds4mlx.settings import prepare_environment

    prepare_environment()  # as an engine does: how launches are put together counts
    import mlx.core as mx

    from ds4mlx.costs.measure import measure, why_unmeasurable
    from ds4mlx.costs.timing import Stopwatch
    from ds4mlx.costs.workload import Moment
    from ds4mlx.kernel_choice import choose_kernels

    if reason := why_unmeasurable():
        raise BackendUnavailable(reason)
    counts = [1] if prefill_chunk is None else [1, prefill_chunk]
    moments = [Moment(context - count, count) for count in counts]
    return measure(moments, choose_kernels(mx), Stopwatch(clock))


def warm(path: Path) -> None:
    """Read the whole file once, so that the first prompt does not wait for the disk."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(8 << 20)
        while file.readinto(buffer):
            pass


def _open_scripted(options: EngineOptions) -> Engine:
    if options.script is None:
        raise UsageError("--backend scripted needs --script FILE.json")
    from shared.scripted import load

    return load(options.script, power=options.power)


def _open_reference(path: Path, options: EngineOptions) -> Engine:
    from shared.model.reference_engine import load

    return load(
        path,
        prefill_chunk=options.prefill_chunk,
        activation=options.activation or "kv",
        dense_index_rows=options.dense_index_rows,
        effort_profile=options.effort_profile,
        power=options.power,
    )


def _open_mlx(path: Path, options: EngineOptions, plan: MemoryPlan, say: Say) -> Engine:
    from ds4mlx.engine import load

    return load(
        path,
        prefill_chunk=options.prefill_chunk,
        quality=options.quality,
        load=options.load,
        effort_profile=options.effort_profile,
        power=options.power,
        activation=options.activation or "kv",
        dense_index_rows=options.dense_index_rows,
        planned_bytes=plan.total,
        progress=load_progress(plan.weights, say),
    )


def _open_cuda(path: Path, options: EngineOptions, plan: MemoryPlan, say: Say) -> Engine:
    from ds4cuda.engine import load

    return load(
        path,
        context=options.context,
        prefill_chunk=options.prefill_chunk,
        effort_profile=options.effort_profile,
        power=options.power,
        activation=options.activation or ("kv" if options.quality else "actq"),
        dense_index_rows=options.dense_index_rows,
        progress=load_progress(plan.weights, say),
    )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
    except ImportError:
        return True  # installed but broken: to import it tells how


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
