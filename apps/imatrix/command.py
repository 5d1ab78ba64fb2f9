"""`ds4 imatrix`: the command line of collecting what matters to the experts. Spec: apps §8.2."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from apps import options
from apps.chat.interrupt import Interrupt
from apps.model_choice import DEFAULT_MODEL
from apps.opened_engine import opened_engine
from apps.output_file import check_replaceable
from apps.progress_line import progress_line
from apps.quantize.listing import size_text
from shared.errors import Cancelled, Ds4Error, UsageError
from shared.expert_watch import WatchableEngine
from shared.quantise.imatrix import imatrix_bytes, write_imatrix
from shared.quantise.imatrix_reading import Reading, read_all, read_prompts
from shared.quantise.imatrix_sums import ImportanceSums
from shared.session import Engine, Session
from shared.text.tokenizer import Tokenizer

LEAST_CONTEXT = 2


def imatrix(
    dataset: Annotated[
        Path,
        typer.Option(
            "--dataset",
            metavar="FILE",
            help="Rendered transcripts, each behind a line `===== DS4_IMATRIX_PROMPT`.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.dat", help="The file to write.")],
    max_prompts: Annotated[
        int | None,
        typer.Option("--max-prompts", metavar="N", min=1, show_default="all", help="Read the first N."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", metavar="N", min=1, show_default="no limit", help="Read N tokens in all."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
    model: options.ModelOption = None,
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    ctx: options.ContextOption = options.DEFAULT_CONTEXT,
    prefill_chunk: options.PrefillChunkOption = None,
    load: options.LoadOption = "mmap",
    quality: options.QualityOption = False,
    warm_weights: options.WarmWeightsOption = False,
    threads: options.ThreadsOption = None,
    power: options.PowerOption = options.DEFAULT_POWER,
    simulate_memory: options.SimulateMemoryOption = None,
    activation: options.ActivationOption = None,
    dense_index_rows: options.DenseIndexRowsOption = 0,
) -> None:
    """Collect how much each column of the experts' matrices matters while a model reads text.

    `ds4 quantize --imatrix` makes a better file with it. Nothing is written before all is read."""
    if ctx < LEAST_CONTEXT:
        raise UsageError(f"--ctx must be at least {LEAST_CONTEXT}, not {ctx}")
    prompts = read_prompts(dataset)[:max_prompts]
    check_replaceable(out, dataset, model or DEFAULT_MODEL)
    if out.exists() and not overwrite:
        raise UsageError(f"{out} exists: name another file, or replace it with --overwrite")
    engine_options = options.EngineOptions(
        model=model,
        backend=backend,
        script=script,
        context=ctx,
        prefill_chunk=prefill_chunk,
        simulate_memory=simulate_memory,
        load=load,
        quality=quality,
        warm_weights=warm_weights,
        threads=threads,
        power=power,
        activation=activation,
        dense_index_rows=dense_index_rows,
    )
    with opened_engine(engine_options) as engine:
        record = _collect(engine, prompts, _Wish(dataset, out, ctx, max_tokens))
    print(json.dumps(record) if as_json else _line(record))


@dataclass(frozen=True, slots=True)
class _Wish:
    dataset: Path
    out: Path
    context: int
    max_tokens: int | None


def _collect(engine: Engine, prompts: list[bytes], wish: _Wish) -> dict[str, Any]:
    """Read, write the file and tell what was done. Raises UsageError for an engine that has no experts to
    show, Cancelled."""
    if not isinstance(engine, WatchableEngine):
        raise UsageError(f"the {engine.backend} backend has no experts to collect from: name another one")
    began = time.monotonic()
    sums = ImportanceSums(engine.shape)
    nbytes = imatrix_bytes(sums.sizes(), str(wish.dataset))
    _check_room(wish.out, nbytes)
    with closing(engine.open_watched_session(wish.context, sums)) as session:
        reading = _read(session, engine.tokenizer, prompts, wish.max_tokens)
    entries, dataset = sums.entries(), str(wish.dataset)
    write_imatrix(wish.out, entries, len(sums.names), dataset=dataset, chunks=sums.batches)
    return {
        "file": str(wish.out),
        "bytes": nbytes,
        "model": engine.name,
        "backend": engine.backend,
        "prompts": reading.prompts,
        "tokens": reading.tokens,
        "cut_prompts": reading.cut,
        "batches": sums.batches,
        "experts": engine.shape.layer_count * engine.shape.expert_count,
        "unseen_experts": sums.unseen,
        "seconds": round(time.monotonic() - began, 1),
    }


def _read(session: Session, tokenizer: Tokenizer, prompts: list[bytes], max_tokens: int | None) -> Reading:
    total = len(prompts)
    with Interrupt() as interrupt, progress_line(total) as tell:

        def told(done: int, tokens: int) -> None:
            tell(done, f"read {done}/{total} prompts, {tokens} tokens")

        try:
            return read_all(
                session, tokenizer, prompts, max_tokens=max_tokens, told=told, cancelled=interrupt
            )
        except Cancelled:
            raise Cancelled("stopped: nothing was written") from None


def _line(record: dict[str, Any]) -> str:
    cut = f" ({record['cut_prompts']} cut)" if record["cut_prompts"] else ""
    return (
        f"{record['file']}: {size_text(record['bytes'])}, {record['prompts']} prompts{cut}, "
        f"{record['tokens']} tokens, {record['unseen_experts']} of {record['experts']} experts unseen, "
        f"{record['seconds']:.0f} s"
    )


def _check_room(out: Path, nbytes: int) -> None:
    """Raises Ds4Error where the file cannot fit."""
    free = shutil.disk_usage(out.absolute().parent).free
    if nbytes > free:
        raise Ds4Error(f"{out} takes {size_text(nbytes)} but the disk has {size_text(free)} free")
