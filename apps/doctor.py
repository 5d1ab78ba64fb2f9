"""`ds4 doctor`: what this machine can run, and why not the rest. Changes nothing and loads no weights."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from apps import options
from apps.backend import (
    Backend,
    cuda_device,
    kernel_report,
    planner_of_file,
    simulated_machine,
    why_unavailable,
)
from apps.console import console, say
from apps.memory import GIB, check_fits, memory_budget, physical_memory
from apps.model_choice import choose_model
from shared.errors import Ds4Error

_PACKAGES = (
    "numpy",
    "tokenizers",
    "mlx",
    "mlx-lm",
    "typer",
    "rich",
    "prompt_toolkit",
    "starlette",
    "hypercorn",
)
_BACKEND = "backend "
_BACKENDS: tuple[Backend, ...] = get_args(Backend)

StrictOption = Annotated[bool, typer.Option("--strict", help="A kernel that fails its check is a problem.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked matter: `ok` False makes the exit code 1, None only informs."""

    name: str
    ok: bool | None
    text: str
    data: Any


def doctor(
    model: options.ModelOption = None,
    context: options.ContextOption = options.DEFAULT_CONTEXT,
    prefill_chunk: options.PrefillChunkOption = None,
    simulate_memory: options.SimulateMemoryOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> int:
    """Check this machine: backends, kernels, memory, disk, model. Exit code 1 if a chat could not start."""
    findings = list(examine(model, context, prefill_chunk, simulate_memory, strict=strict))
    healthy = all(finding.ok is not False for finding in findings)
    if as_json:
        print(json.dumps(_report(healthy, findings), indent=2, ensure_ascii=False))
    else:
        out = console(sys.stdout)
        width = max(len(finding.name) for finding in findings) + 2
        for finding in findings:
            style = {True: "ds4.ok", False: "ds4.error", None: ""}[finding.ok]
            mark = {True: "ok", False: "PROBLEM", None: "-"}[finding.ok]
            say(f"{finding.name:<{width}}{mark:<9}{finding.text}", style, on=out)
    return 0 if healthy else 1


def examine(
    model: Path | None,
    context: int,
    prefill_chunk: int | None,
    simulate_memory: str | None,
    *,
    strict: bool = False,
) -> Iterator[Finding]:
    """Every finding, in the order of the report. `strict`: a kernel that failed its check is a problem."""
    yield from _system()
    backends = list(_backends())
    yield from backends
    mlx = any(finding.name == _BACKEND + "mlx" and finding.ok for finding in backends)
    if mlx:
        yield _kernels(strict)
    budget = memory_budget(simulate_memory)
    yield _memory(budget, simulate_memory)
    # The plan of a simulated Mac needs no MLX.
    backend: Backend = "mlx" if mlx or simulate_memory is not None else "reference"
    yield from _model(backend, model, context, prefill_chunk, budget, simulate_memory)
    yield _disk(Path.cwd())


def _report(healthy: bool, findings: Sequence[Finding]) -> dict[str, Any]:
    """The JSON form: one object per finding, the backends gathered in one."""
    report: dict[str, Any] = {"ok": healthy, "backends": {}}
    for finding in findings:
        name = finding.name.removeprefix(_BACKEND)
        place = report if name == finding.name else report["backends"]
        place[name.replace(" ", "_")] = {"ok": finding.ok, "text": finding.text} | finding.data
    return report


def _system() -> Iterator[Finding]:
    from shared import __version__

    machine = f"{platform.system()} {platform.release()} {platform.machine()}"
    yield Finding("ds4", None, __version__, {"version": __version__})
    yield Finding("platform", None, machine, {})
    supported = sys.version_info >= (3, 11)
    yield Finding(
        "python",
        supported,
        platform.python_version() + ("" if supported else ": 3.11 or newer is needed"),
        {},
    )
    versions = {name: _version(name) for name in _PACKAGES}
    shown = ", ".join(f"{name} {found}" for name, found in versions.items() if found)
    yield Finding("packages", None, shown, {"versions": versions})


def _backends() -> Iterator[Finding]:
    for name in _BACKENDS:
        reason = "for tests: needs --script FILE.json" if name == "scripted" else why_unavailable(name)
        if reason is None and name == "mlx":
            yield _mlx()
        elif reason is None and name == "cuda":
            yield _cuda()
        else:
            available = True if reason is None else None
            yield Finding(_BACKEND + name, available, reason or "slow, for checks", {})


def _kernels(strict: bool) -> Finding:
    operations, unknown = kernel_report()
    failed = [found for found in operations if found["wanted"] and found["status"] == "fallback"]
    running = sum(found["status"] == "kernel" for found in operations)
    if failed:
        names = "; ".join(f"{found['operation']}: {found['reason']}" for found in failed)
        text = f"{running} of {len(operations)} operations run as kernels; failed their check: {names}"
    elif running == len(operations):
        text = f"all {running} operations run as kernels"
    else:
        reasons = sorted({found["reason"] for found in operations if found["reason"]})
        text = f"{running} of {len(operations)} operations run as kernels: {', '.join(reasons)}"
    if unknown:
        text += f"; switched off, but no operation: {', '.join(unknown)}"
    figures = {"operations": operations, "unknown": unknown}
    return Finding("kernels", False if failed and strict else None, text, figures)


def _memory(budget: int, simulated: str | None) -> Finding:
    pretended = " (simulated)" if simulated else ""
    text = f"{physical_memory() / GIB:.1f} GiB, usable for a model {budget / GIB:.1f} GiB{pretended}"
    return Finding("memory", None, text, {"physical_bytes": physical_memory(), "usable_bytes": budget})


def _model(
    backend: Backend,
    model: Path | None,
    context: int,
    prefill_chunk: int | None,
    budget: int,
    simulated: str | None,
) -> Iterator[Finding]:
    try:
        choice = choose_model(model)
    except Ds4Error as error:
        yield Finding("model", False, str(error), {"path": None})
        return
    path = {"path": str(choice.path)}
    try:
        shape, planned = planner_of_file(backend, choice.path, prefill_chunk, simulated=simulated is not None)
        plan = planned(context)
    except Ds4Error as error:
        yield Finding("model", False, str(error), path | {"problems": list(getattr(error, "problems", ()))})
        return
    yield Finding("model", True, f"{choice.path} ({shape.variant}){_note(choice.note)}", path)
    weights, buffers, total = (part / GIB for part in (plan.weights, plan.context_buffers, plan.total))
    text = f"ctx {plan.context}: weights {weights:.2f} GiB + context {buffers:.2f} GiB = {total:.2f} GiB"
    where = "" if simulated is None else f"on {simulated_machine(backend, simulated)}: "
    figures = {
        "context": plan.context,
        "weight_bytes": plan.weights,
        "raw_bytes": plan.raw,
        "compressed_bytes": plan.compressed,
        "scratch_bytes": plan.scratch,
        "total_bytes": plan.total,
        "prefill_chunk": plan.prefill_chunk,
    }
    try:
        check_fits(plan, budget, planned)
    except Ds4Error as error:
        yield Finding("memory plan", False, f"{where}{error}", figures)
    else:
        yield Finding("memory plan", True, where + text, figures)


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    return Finding("disk", None, f"{free / GIB:.1f} GiB free in {folder}", {"free_bytes": free})


def _mlx() -> Finding:
    try:
        import mlx.core as mx

        device = "GPU" if mx.default_device().type == mx.DeviceType.gpu else "CPU"
    except Exception as error:  # a broken installation fails in many ways, and that is the finding
        return Finding(_BACKEND + "mlx", False, f"MLX is installed but does not start: {error}", {})
    return Finding(_BACKEND + "mlx", True, f"runs on the {device}", {"device": device.lower()})


def _cuda() -> Finding:
    try:
        return Finding(_BACKEND + "cuda", True, f"runs on {cuda_device()}", {})
    except Exception as error:  # as with MLX
        return Finding(_BACKEND + "cuda", False, f"CuPy is installed but does not start: {error}", {})


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _note(note: str | None) -> str:
    return f": {note}" if note else ""
