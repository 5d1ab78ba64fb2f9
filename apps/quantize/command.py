"""`ds4 quantize`: a Hugging Face checkpoint to a model file, in a recipe of the user's choice."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from apps.console import say
from apps.output_file import check_replaceable, check_writable
from apps.quantize.listing import plan_lines, plan_record, size_text
from apps.quantize.progress import conversion_progress
from shared.errors import UsageError
from shared.quantise.header import imatrix_entries, read_template, template_of_checkpoint
from shared.quantise.imatrix import ImatrixError, read_imatrix
from shared.quantise.plan import check_imatrix, make_plan
from shared.quantise.recipe import RECIPE_NAMES, Recipe, parse_layers, parse_override
from shared.quantise.run import Conversion, OutputError, convert
from shared.quantise.safetensors import Checkpoint

_RESERVE_BYTES = 1 << 28


def quantize(
    hf: Annotated[
        Path,
        typer.Option("--hf", metavar="DIR", help="Folder of the checkpoint: safetensors files, or an index."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The model file to write.")],
    template: Annotated[
        Path | None,
        typer.Option(
            "--template",
            metavar="FILE",
            help="A GGUF file of the same model whose metadata and vocabulary are taken over.",
            show_default="the checkpoint's config.json and tokenizer.json",
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe", metavar="NAME", help=f"Types of the routed experts: {', '.join(RECIPE_NAMES)}."
        ),
    ] = "q2",
    q4_layers: Annotated[
        str | None,
        typer.Option(
            "--q4-layers",
            metavar="LIST",
            help="Layers that q2-q4 keeps at 4 bits.",
            show_default="the last six",
        ),
    ] = None,
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor-type",
            metavar="PREFIX=TYPE",
            help="Another type for the tensors whose names begin so; repeatable, the last one counts.",
        ),
    ] = None,
    imatrix: Annotated[
        Path | None,
        typer.Option("--imatrix", metavar="FILE", help="Importance of the experts' columns (a .dat file)."),
    ] = None,
    imatrix_strict: Annotated[
        bool, typer.Option("--imatrix-strict", help="Fail where the importances lack a tensor.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "-t",
            "--threads",
            metavar="N",
            envvar="DS4_THREADS",
            min=1,
            max=1024,
            show_default="all cores",
            help="Experts to work on at once.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be written, and stop.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model file if it exists.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The plan, or the result, as JSON.")] = False,
) -> None:
    """Make a model file from a Hugging Face checkpoint.

    An interrupted run goes on where it stopped when the same command is given again."""
    chosen = Recipe(
        recipe,
        None if q4_layers is None else parse_layers(q4_layers),
        tuple(parse_override(text) for text in tensor_type or ()),
    )
    (check_writable if dry_run else check_replaceable)(out)
    if out.exists() and not (overwrite or dry_run):
        raise UsageError(f"{out} exists: name another file, or replace it with --overwrite")
    importances = None if imatrix is None else read_imatrix(imatrix)
    with Checkpoint.open(hf) as checkpoint:
        model = template_of_checkpoint(hf) if template is None else read_template(template)
        plan = make_plan(checkpoint, model.shape, chosen)
        metadata = list(model.metadata)
        if importances is not None:
            _check_importances(check_imatrix(plan, importances), imatrix_strict)
            metadata += imatrix_entries(importances)
        conversion = Conversion(checkpoint, metadata, plan, importances)
        if dry_run:
            print(json.dumps(plan_record(conversion)) if as_json else "\n".join(plan_lines(conversion)))
            return
        _run(conversion, out, threads or os.cpu_count() or 1, as_json)


def _check_importances(lacking: list[str], strict: bool) -> None:
    if not lacking:
        return
    text = f"the importances lack {len(lacking)} expert tensors, first {lacking[0]}"
    if strict:
        raise ImatrixError(text)
    say(f"{text}: those are made without", "ds4.warning")


def _run(conversion: Conversion, out: Path, threads: int, as_json: bool) -> None:
    total = conversion.offsets()[-1]
    _check_space(out, total)
    began = time.monotonic()
    with conversion_progress(conversion.plan) as advance:
        resumed = convert(conversion, out, workers=threads, progress=advance)
    seconds = time.monotonic() - began
    if as_json:
        record = {"file": str(out), "bytes": total, "tensors": len(conversion.plan), "resumed": resumed}
        print(json.dumps(record | {"seconds": round(seconds, 1)}))
        return
    before = f", {resumed} of them from before" if resumed else ""
    print(f"{out}: {size_text(total)}, {len(conversion.plan)} tensors{before}, {seconds:.0f} s")


def _check_space(out: Path, total: int) -> None:
    unfinished = out.with_name(out.name + ".unfinished")
    held = unfinished.stat().st_size if unfinished.exists() else 0
    free = shutil.disk_usage(out.absolute().parent).free
    if total - held + _RESERVE_BYTES > free:
        raise OutputError(
            f"not enough disk space for {out}: {size_text(total - held)} to write, {size_text(free)} free "
            "(some is kept in reserve)"
        )
