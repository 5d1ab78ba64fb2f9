"""`ds4 splice`: the command line of mixing two files of one model. Spec: apps §8.3."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from apps.memory import MIB
from apps.output_file import check_replaceable
from shared.errors import Ds4Error, UsageError
from shared.model.open import open_model
from shared.model.splice import ByteProgress, SplicePlan, parse_layers, plan_splice, write_splice

DEFAULT_LAYERS = "37-42"
# What must be written between two lines of progress: so many percent, and so many bytes.
_STEP_PERCENT, _STEP_BYTES = 5, 1 << 30


def splice(
    base: Annotated[
        Path, typer.Option("--base", metavar="FILE.gguf", help="Gives all that is not taken from the donor.")
    ],
    donor: Annotated[
        Path,
        typer.Option(
            "--donor", metavar="FILE.gguf", help="The same model in another recipe; gives routed experts."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.gguf", help="The new file.")],
    layers: Annotated[
        str,
        typer.Option(
            "--q4-layers",
            metavar="LIST",
            help="Layers whose routed experts come from the donor, such as 3,37-42.",
        ),
    ] = DEFAULT_LAYERS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the new file if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as one JSON object.")] = False,
) -> None:
    """Put some layers' routed experts of one file into another of the same model, byte for byte."""
    check_replaceable(out, base, donor)
    if out.exists() and not (force or dry_run):
        raise UsageError(f"{out} exists: give --force to replace it")
    with open_model(base) as first, open_model(donor) as second:
        chosen = parse_layers(layers, first.shape.layer_count)
        plan = plan_splice(first, second, chosen)
        print(json.dumps(_record(plan, chosen), indent=2) if as_json else _text(plan, chosen))
        if dry_run:
            return
        _check_room(out, plan)
        write_splice(plan, out, progress_lines())
    with open_model(out) as written:  # what was just written is a model again
        print(f"wrote {out}: {written.gguf.size} bytes", file=sys.stderr)


def _check_room(out: Path, plan: SplicePlan) -> None:
    """Raises Ds4Error where the new file cannot fit."""
    needed, free = plan.new_bytes, shutil.disk_usage(out.absolute().parent).free
    if needed > free:
        raise Ds4Error(f"{out} takes {needed / MIB:.0f} MiB but the disk has {free / MIB:.0f} MiB free")


def _text(plan: SplicePlan, layers: tuple[int, ...]) -> str:
    lines = [
        f"{info.name}: {plan.base.tensors[info.name].type.name} -> {info.type.name}" for info in plan.taken
    ]
    return "\n".join(
        [
            *lines,
            f"layers {','.join(map(str, layers))}: {len(plan.taken)} tensors, {plan.donor_bytes} bytes",
            f"base {plan.base_bytes} bytes, new {plan.new_bytes} bytes, {plan.delta:+} bytes",
        ]
    )


def _record(plan: SplicePlan, layers: tuple[int, ...]) -> dict[str, object]:
    return {
        "layers": list(layers),
        "tensors": [
            {"name": info.name, "base": plan.base.tensors[info.name].type.name, "donor": info.type.name}
            for info in plan.taken
        ],
        "donor_bytes": plan.donor_bytes,
        "base_bytes": plan.base_bytes,
        "new_bytes": plan.new_bytes,
        "delta_bytes": plan.delta,
    }


def progress_lines() -> ByteProgress:
    """Lines on stderr: the last step has one, those before it only in files of gibibytes."""
    told, told_bytes = 0, 0

    def tell(done: int, total: int) -> None:
        nonlocal told, told_bytes
        steps = 100 * done // (total * _STEP_PERCENT)
        if steps > told and (done - told_bytes >= _STEP_BYTES or done >= total):
            told, told_bytes = steps, done
            print(
                f"written {_STEP_PERCENT * steps} % ({done / MIB:.0f} of {total / MIB:.0f} MiB)",
                file=sys.stderr,
                flush=True,
            )

    return tell
