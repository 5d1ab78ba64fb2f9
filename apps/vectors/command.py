"""`ds4 vectors`: the command line of checking and of recording vectors. Exit code 0: all passed, 1: not all.

Spec: apps §10.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apps import options
from apps.chat.interrupt import Interrupt
from apps.opened_engine import opened_engine
from apps.output_file import check_writable
from apps.vectors.cases import SKIPPED, VectorFormat, read_cases
from apps.vectors.checking import check_all
from apps.vectors.recording import RecordingWish
from shared.evaluation.local_vectors import MOST_CANDIDATES, PromptMode
from shared.evaluation.official_vectors import MOST_STEPS

DEFAULT_CONTEXT = 5000
# What the recorded numbers were made with: the size of a prefill step changes roundings.
PREFILL_CHUNKS: dict[VectorFormat, int] = {"official": 2048, "local": 4096}
_RECORD = "Recording"


def vectors(
    file: Annotated[Path, typer.Argument(metavar="FILE.vec", help="The vectors.")],
    model: options.ModelOption = None,
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="ID", help="Leave this case out.", show_default=SKIPPED[0]),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
    record: Annotated[
        list[Path] | None,
        typer.Option(
            "--record",
            metavar="PROMPT",
            help="Write FILE.vec from this prompt file (repeatable) instead of checking it.",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    format_: Annotated[
        VectorFormat,
        typer.Option(
            "--format",
            help="Logits behind a prompt, or the tokens and log probabilities of an answer.",
            rich_help_panel=_RECORD,
        ),
    ] = "local",
    mode: Annotated[
        PromptMode,
        typer.Option("--mode", help="local: how the prompt becomes tokens.", rich_help_panel=_RECORD),
    ] = "text",
    frontier: Annotated[
        int | None,
        typer.Option(
            "--frontier",
            metavar="N",
            min=1,
            help="local: use the first N tokens.",
            show_default="the whole prompt",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            "--steps",
            metavar="N",
            min=1,
            max=MOST_STEPS,
            help="official: tokens of the answer.",
            rich_help_panel=_RECORD,
        ),
    ] = 4,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=1,
            max=MOST_CANDIDATES,
            help="Candidates to write at each place.",
            show_default="local: 64, official: 5",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    ctx: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--ctx",
            metavar="N",
            envvar="DS4_CTX",
            min=2,
            help="Context size in tokens.",
            show_default="5000",
            rich_help_panel=_RECORD,
        ),
    ] = None,
    prefill_chunk: options.PrefillChunkOption = None,
    load: options.LoadOption = "mmap",
    quality: options.QualityOption = False,
    warm_weights: options.WarmWeightsOption = False,
    threads: options.ThreadsOption = None,
    power: options.PowerOption = options.DEFAULT_POWER,
    simulate_memory: options.SimulateMemoryOption = None,
    effort_profile: options.EffortProfileOption = "auto",
    activation: options.ActivationOption = None,
    dense_index_rows: options.DenseIndexRowsOption = 0,
) -> int:
    """Check that a model still computes what was recorded of it, or record it."""
    cases = None
    if record:
        check_writable(file)
        wish = RecordingWish(file, tuple(record), format_, mode, frontier, steps, top, ctx or DEFAULT_CONTEXT)
        wish.check()
        context = wish.context
    else:
        cases = read_cases(file, skip)
        format_, context = cases.format, cases.context
    engine_options = options.EngineOptions(
        model=model,
        backend=backend,
        script=script,
        context=context,
        prefill_chunk=PREFILL_CHUNKS[format_] if prefill_chunk is None else prefill_chunk,
        simulate_memory=simulate_memory,
        effort_profile=effort_profile,
        load=load,
        quality=quality,
        warm_weights=warm_weights,
        threads=threads,
        power=power,
        activation=activation,
        dense_index_rows=dense_index_rows,
    )
    with opened_engine(engine_options) as engine, Interrupt() as interrupt:
        if cases is not None:
            return check_all(engine, cases, as_json=as_json, cancelled=interrupt)
        wish.write(engine, interrupt)
        return 0
