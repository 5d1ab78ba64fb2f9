"""`ds4 score`: the command line of scoring and of comparing two scored models. Spec: apps §8.4."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TextIO

import typer

from apps import options
from apps.chat.interrupt import Interrupt
from apps.console import say
from apps.finite_json import finite
from apps.opened_engine import opened_engine
from apps.output_file import check_writable
from shared.errors import UsageError
from shared.evaluation.manifest import ScoreCase, read_manifest
from shared.evaluation.score_table import HEADER, Comparison, compare, read_table, row, summarise
from shared.evaluation.teacher_forcing import CaseScore, encode_cases, score_cases
from shared.session import Engine

DEFAULT_CONTEXT, LEAST_CONTEXT = 4096, 1024

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    no_args_is_help=False,
    help="Score how well a model predicts given continuations.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def score(
    context: typer.Context,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest", metavar="FILE.tsv", help="Lines of id, prompt file and continuation file; tabs."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE.tsv", help="Where the table goes; else stdout."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of the table.")] = False,
    model: options.ModelOption = None,
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    ctx: options.ContextOption = DEFAULT_CONTEXT,
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
) -> None:
    """Score how well a model predicts given continuations: the model sees each token behind the true ones."""
    if context.invoked_subcommand is not None:
        return
    if manifest is None:
        raise UsageError("ds4 score needs --manifest FILE.tsv (or `ds4 score compare OLD NEW`)")
    if ctx < LEAST_CONTEXT:
        raise UsageError(f"--ctx must be at least {LEAST_CONTEXT} for scoring, not {ctx}")
    cases = read_manifest(manifest)
    if output is not None:
        check_writable(output)
    engine_options = options.EngineOptions(
        model=model,
        backend=backend,
        script=script,
        context=ctx,
        prefill_chunk=prefill_chunk,
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
    with opened_engine(engine_options) as engine:
        _run(engine, cases, ctx, output, as_json)


@app.command("compare")
def compare_tables(
    old: Annotated[Path, typer.Argument(help="The table of the first model.")],
    new: Annotated[Path, typer.Argument(help="The table of the second one.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Compare two tables on the cases that both have."""
    comparison = compare(read_table(old), read_table(new))
    if as_json:
        print(json.dumps(finite(comparison.figures() | _best(comparison)), indent=2))
        return
    for name, value in comparison.figures().items():
        print(name, *(_shown(number) for number in (value if isinstance(value, list) else [value])))
    for side, for_new in (("new", True), ("old", False)):
        pairs = comparison.best(for_new=for_new)
        print(f"best cases of {side}:" + ("" if pairs else " none"))
        for pair in pairs:
            print(f"  {pair.old.id} {_shown(pair.old.avg_nll)} {_shown(pair.new.avg_nll)} {pair.delta:+.9f}")


def _best(comparison: Comparison) -> dict[str, list[dict[str, object]]]:
    return {
        f"best_of_{side}": [
            {
                "id": pair.old.id,
                "old_avg_nll": pair.old.avg_nll,
                "new_avg_nll": pair.new.avg_nll,
                "delta_new_minus_old": pair.delta,
            }
            for pair in comparison.best(for_new=for_new)
        ]
        for side, for_new in (("new", True), ("old", False))
    }


def _shown(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.9f}"


def _run(engine: Engine, cases: list[ScoreCase], context: int, output: Path | None, as_json: bool) -> None:
    encoded = encode_cases(engine, cases, context)
    with closing(engine.open_session(context)) as session, _opened(output) as file, Interrupt() as interrupt:
        if not as_json:
            print(HEADER, file=file, flush=True)
        scores = score_cases(
            session,
            encoded,
            engine.power,
            scored=_teller(len(cases), None if as_json else file),
            cancelled=interrupt,
        )
        summary = summarise(scores)
        if as_json:
            record = {
                "model": engine.name,
                "backend": engine.backend,
                "summary": asdict(summary),
                "cases": [asdict(score) | {"avg_nll": score.avg_nll} for score in scores],
            }
            print(json.dumps(finite(record), indent=2), file=file)
    say(summary.line(), "ds4.timing")


def _teller(total: int, table: TextIO | None) -> Callable[[CaseScore], None]:
    """Writes each row to `table`, if there is one, as soon as it is known, and says how far the run is: on
    a terminal in one line that is rewritten."""
    terminal = sys.stderr.isatty()
    done = 0

    def tell(score: CaseScore) -> None:
        nonlocal done
        done += 1
        if table is not None:
            print(row(score), file=table, flush=True)
        line = f"scored {done}/{total}: {score.id} avg_nll={score.avg_nll:.6f}"
        if terminal:
            print(f"\r\x1b[K{line}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    return tell


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    with path.open("w", encoding="utf-8") as file:
        yield file
