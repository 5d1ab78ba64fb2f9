"""`ds4 bench`: the command line of the sweep and of its chart."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TextIO

import typer

from apps import options
from apps.backend import kernel_times, open_engine
from apps.bench.frontier_logits import FrontierLogits
from apps.bench.kernels import check_kernel_options, write_kernel_times
from apps.bench.plot import write_chart
from apps.bench.prompt import PromptSource
from apps.bench.sweep import CSV_HEADER, SweepRow, SweepSettings, sweep
from apps.config import long_name
from apps.console import say, sayer
from apps.output_file import check_writable
from apps.startup import engine_notes
from apps.threads import limit_threads
from apps.trace import Trace
from shared.errors import UsageError
from shared.session import Engine, Progress

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    no_args_is_help=False,
    help="Measure prefill and generation speed over growing contexts.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

PromptFileOption = Annotated[
    Path | None, typer.Option("--prompt-file", metavar="FILE", help="Text, tokenised as it is.")
]
ChatPromptFileOption = Annotated[
    Path | None,
    typer.Option("--chat-prompt-file", metavar="FILE", help="Text, as one user message without thinking."),
]
PromptTokensOption = Annotated[
    Path | None, typer.Option("--prompt-tokens", metavar="FILE.json", help="A JSON array of token ids.")
]


@app.callback()
def bench(
    context: typer.Context,
    prompt_file: PromptFileOption = None,
    chat_prompt_file: ChatPromptFileOption = None,
    prompt_tokens: PromptTokensOption = None,
    system: options.SystemOption = options.DEFAULT_SYSTEM,
    model: options.ModelOption = None,
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    ctx_start: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="First context size.", show_default="2048, or ctx-max if less"),
    ] = None,
    ctx_max: Annotated[int, typer.Option(min=1, metavar="N", help="Last context size.")] = 32768,
    ctx_alloc: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Context to allocate.", show_default="ctx-max + gen-tokens + 1"
        ),
    ] = None,
    step_incr: Annotated[int, typer.Option(min=1, metavar="N", help="Added from step to step.")] = 2048,
    step_mul: Annotated[
        float, typer.Option(min=1, metavar="F", help="Factor from step to step, if above 1.")
    ] = 1.0,
    gen_tokens: Annotated[
        int,
        typer.Option(
            "--gen-tokens",
            "--tokens",
            "-n",
            min=0,
            metavar="N",
            help="Tokens to generate at each size; 0: prefill only.",
        ),
    ] = 128,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Where the rows go; else stdout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of CSV.")] = False,
    dump_frontier_logits_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the logits of each size into this folder.")
    ] = None,
    prefill_chunk: options.PrefillChunkOption = None,
    load: options.LoadOption = "mmap",
    quality: options.QualityOption = False,
    warm_weights: options.WarmWeightsOption = False,
    threads: options.ThreadsOption = None,
    power: options.PowerOption = options.DEFAULT_POWER,
    simulate_memory: options.SimulateMemoryOption = None,
    trace: options.TraceOption = None,
    activation: options.ActivationOption = None,
    dense_index_rows: options.DenseIndexRowsOption = 0,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            help="Time each Metal kernel instead, on random weights of Flash's shapes: in the decode step "
            "that ends at --ctx-max and, if --prefill-chunk is given, in such a prefill step.",
        ),
    ] = False,
) -> None:
    """Measure prefill and generation speed over growing contexts."""
    if context.invoked_subcommand is not None:
        return
    if kernels:
        check_kernel_options(_given(context), backend, ctx_max, prefill_chunk)
        if csv is not None:
            check_writable(csv)
        rows = kernel_times(ctx_max, prefill_chunk, time.perf_counter)
        with _output(csv) as output:
            write_kernel_times(rows, output, as_json=as_json)
        return
    limit_threads(threads)
    settings = SweepSettings(
        min(2048, ctx_max) if ctx_start is None else ctx_start, ctx_max, step_incr, step_mul, gen_tokens
    )
    settings.check()
    allocated = ctx_alloc if ctx_alloc is not None else ctx_max + gen_tokens + 1
    if allocated <= ctx_max + gen_tokens:
        raise UsageError(f"--ctx-alloc must exceed --ctx-max + --gen-tokens = {ctx_max + gen_tokens}")
    source = PromptSource.choose(prompt_file, chat_prompt_file, prompt_tokens)
    if dump_frontier_logits_dir is not None and not dump_frontier_logits_dir.is_dir():
        raise UsageError(f"--dump-frontier-logits-dir {dump_frontier_logits_dir}: no such folder")
    if csv is not None:
        check_writable(csv)
    prompt = source.read()
    engine = open_engine(
        options.EngineOptions(
            model=model,
            backend=backend,
            script=script,
            context=allocated,
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
    )
    try:
        for note in engine_notes(engine):
            say(note, "ds4.warning")
        tokens = source.encode(prompt, engine, system)
        if len(tokens) < ctx_max:
            raise UsageError(
                f"the prompt has {len(tokens)} tokens but --ctx-max is {ctx_max}: give a longer one, or "
                f"--ctx-max {max(1, len(tokens))}"
            )
        with Trace(trace, say=sayer("ds4.warning")) as events:
            events.write("prompt", prompt_tokens=tokens)
            _run(engine, tokens, settings, allocated, csv, as_json, dump_frontier_logits_dir, quality, events)
    finally:
        engine.close()


def _given(context: typer.Context) -> list[str]:
    """The options on the command line, by their long names."""
    given = [option for option in context.command.params if options.is_given(context, option.name or "")]
    return [f"--{long_name(option)}" for option in given]


def _run(
    engine: Engine,
    tokens: list[int],
    settings: SweepSettings,
    allocated: int,
    csv: Path | None,
    as_json: bool,
    logits_folder: Path | None,
    quality: bool,
    trace: Trace,
) -> None:
    session = engine.open_session(allocated)
    dump = FrontierLogits(logits_folder, engine, session, quality, len(tokens)) if logits_folder else None
    rows: list[SweepRow] = []
    try:
        with _output(csv) as output:
            if not as_json:
                print(CSV_HEADER, file=output, flush=True)
            for row in sweep(
                session,
                tokens,
                settings,
                end_token=engine.tokenizer.specials.eos,
                vocabulary_size=engine.shape.vocabulary_size,
                power=engine.power,
                progress=_progress,
                at_frontier=dump.write if dump else _no_dump,
            ):
                rows.append(row)
                trace.write("frontier", **asdict(row))
                if not as_json:
                    print(row.csv(), file=output, flush=True)
                say(
                    f"{row.ctx_tokens} tokens: prefill {row.prefill_tps:.2f} t/s, "
                    f"generation {row.gen_tps:.2f} t/s",
                    "ds4.timing",
                )
            if as_json:
                print(json.dumps(_record(engine, rows), indent=2), file=output)
    finally:
        session.close()


def _no_dump(_frontier: int, _prefill_tokens: int) -> None:
    return None


def _record(engine: Engine, rows: list[SweepRow]) -> dict[str, object]:
    return {
        "model": engine.name,
        "backend": engine.backend,
        "quant_bits": engine.quant_bits,
        "rows": [
            {name: getattr(row, name) for name in CSV_HEADER.split(",")}
            | {"prefill_tps": round(row.prefill_tps, 2), "gen_tps": round(row.gen_tps, 2)}
            for row in rows
        ],
    }


def _progress(frontier: int) -> Progress:
    """One self-rewriting line on a terminal, one line a step elsewhere."""
    terminal = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        share = 100 * done / total if total else 100.0
        line = f"prefill to {frontier}: {done}/{total} ({share:.1f}%)"
        if terminal:
            end = "\n" if done >= total else ""
            print(f"\r{line}", end=end, file=sys.stderr, flush=True)
        elif done:
            print(line, file=sys.stderr, flush=True)

    return show


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    with path.open("w", encoding="utf-8") as file:
        yield file


@app.command()
def plot(
    csv: Annotated[Path, typer.Argument(help="The CSV of a sweep.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The chart.", show_default="STEM_ts.svg"),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading.", show_default="the file's name")] = None,
    width: Annotated[int, typer.Option(min=320, max=10000, help="Pixels.")] = 960,
    height: Annotated[int, typer.Option(min=240, max=10000, help="Pixels.")] = 540,
) -> None:
    """Draw a sweep's CSV as an SVG chart."""
    print(write_chart(csv, output, title, width, height))
