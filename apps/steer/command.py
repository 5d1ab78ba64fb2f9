"""`ds4 steer build|sweep`: the command lines of finding directions and of trying them. Spec: apps §9."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from apps import options
from apps.chat.interrupt import Interrupt
from apps.console import say
from apps.model_choice import DEFAULT_MODEL
from apps.output_file import check_replaceable
from apps.progress_line import progress_line
from apps.steering_options import SteeringRequest
from shared.errors import Cancelled, UsageError
from shared.steering.scale import check_scale

if TYPE_CHECKING:
    from apps.steer.build import BuildSettings
    from shared.model.file_engine import FileEngine
    from shared.steering.directions import Directions

FORMAT = "ds4-directional-steering-v1"
NOTE = "a positive scale takes the direction from bad to good out of outputs, a negative one amplifies it"
BUILD_CONTEXT, SWEEP_CONTEXT, SWEEP_TOKENS = 512, 4096, 160
DEFAULT_SCALES = "-2,-1,-0.5,0,0.5,1,2"

app = typer.Typer(
    add_completion=False,
    help="Find directions that steer a model, and try them.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
JsonOption = Annotated[bool, typer.Option("--json", help="JSON objects on stdout instead of text.")]


@app.command("build")
def build(
    good_file: Annotated[
        Path, typer.Option("--good-file", metavar="FILE", help="Prompts of the one kind, one a line.")
    ],
    bad_file: Annotated[
        Path, typer.Option("--bad-file", metavar="FILE", help="Prompts of the other kind, paired by lines.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE.json", help="What was made; the directions go to FILE.f32."),
    ],
    system: options.SystemOption = options.DEFAULT_SYSTEM,
    component: Annotated[
        Literal["ffn_out", "attn_out"],
        typer.Option("--component", help="Outputs of the experts, or of attention."),
    ] = "ffn_out",
    think: Annotated[bool, typer.Option("--think", help="Prompts that are to be thought about.")] = False,
    pair_normalize: Annotated[
        bool, typer.Option("--pair-normalize", help="Let every pair count alike, however much it differs.")
    ] = False,
    no_orthogonalize: Annotated[
        bool, typer.Option("--no-orthogonalize", help="Keep what points along the mean of the bad outputs.")
    ] = False,
    as_json: JsonOption = False,
    model: options.ModelOption = None,
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    ctx: options.ContextOption = BUILD_CONTEXT,
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
    """Find the direction of each layer in which the outputs of two kinds of prompts differ."""
    from apps.steer.build import BuildSettings
    from shared.steering.prompt_list import read_pairs

    sources = (good_file, bad_file, model or DEFAULT_MODEL)
    check_replaceable(out, *sources)
    vector = out.with_suffix(".f32")
    if vector == out:
        raise UsageError(
            f"--out {out} names the description: end it with .json, {vector.name} is made beside it"
        )
    pairs, unpaired = read_pairs(good_file, bad_file)
    if unpaired:
        say(f"the longer list has {unpaired} prompts without a partner: they are left out", "ds4.warning")
    check_replaceable(vector, *sources)
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
    settings = BuildSettings(ctx, system, component, think, pair_normalize, not no_orthogonalize)
    with _opened(engine_options) as engine:
        directions = _found(engine, pairs, settings)
        description: dict[str, Any] = {
            "format": FORMAT,
            "shape": list(directions.values.shape),
            "component": component,
            "thinking": think,
            "pair_normalize": pair_normalize,
            "orthogonalize_control_mean": not no_orthogonalize,
            "good_file": str(good_file),
            "bad_file": str(bad_file),
            "model": engine.name,
            "note": NOTE,
        }
    _write(out, vector, description, directions)
    layers, width = directions.values.shape
    say(f"{vector}: {layers} layers of {width} from {len(pairs)} pairs; described in {out}", "ds4.ok")
    if as_json:
        print(
            json.dumps(description | {"out": str(out), "vector": str(vector), "pairs": len(pairs)}, indent=2)
        )


@app.command("sweep")
def sweep_scales(
    direction: Annotated[
        Path, typer.Option("--direction", metavar="FILE.f32", help="Directions that `steer build` made.")
    ],
    prompts: Annotated[Path, typer.Option("--prompts", metavar="FILE", help="Prompts, one a line.")],
    scales: Annotated[
        str, typer.Option("--scales", metavar="F,F,...", help="Scales of the experts' outputs, in order.")
    ] = DEFAULT_SCALES,
    attn_scale: Annotated[
        float, typer.Option("--attn-scale", metavar="F", help="Scale of the outputs of attention, always.")
    ] = 0.0,
    tokens: Annotated[
        int, typer.Option("-n", "--tokens", metavar="N", min=1, help="Most tokens of one answer.")
    ] = SWEEP_TOKENS,
    nothink: Annotated[bool, typer.Option("--nothink", help="Answer without thinking.")] = False,
    system: options.SystemOption = options.DEFAULT_SYSTEM,
    as_json: JsonOption = False,
    model: options.ModelOption = None,
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    ctx: options.ContextOption = SWEEP_CONTEXT,
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
    """Answer prompts at several scales, always with the likeliest token."""
    from apps.chat.reply_printer import printable
    from apps.steer.sweep import SweepSettings, sweep
    from shared.steering.prompt_list import read_prompts

    chosen, asked = parse_scales(scales), read_prompts(prompts)
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
        steering=SteeringRequest(direction, chosen[0], attn_scale),
    )
    settings = SweepSettings(ctx, system, not nothink, tokens)
    with _opened(engine_options) as engine, Interrupt() as interrupt:
        assert engine.steering is not None
        for answer in sweep(engine, engine.steering, asked, chosen, settings, cancelled=interrupt):
            if as_json:
                print(json.dumps({name: getattr(answer, name) for name in _SHOWN}), flush=True)
                continue
            cut = "" if answer.finished else ", cut off"
            print(f"prompt: {printable(answer.prompt)}")
            print(f"scale: {answer.scale:g} ({answer.words} words, {answer.tokens} tokens{cut})")
            parts = [printable(part) for part in (answer.thinking, answer.text) if part]
            print(*parts, "", sep="\n", flush=True)


_SHOWN = ("prompt", "scale", "thinking", "text", "words", "tokens", "finished")


def parse_scales(words: str) -> list[float]:
    """The numbers of `--scales`. Raises UsageError."""
    try:
        scales = [float(word) for word in words.split(",")]
    except ValueError:
        raise UsageError(f"--scales takes numbers with commas between them, not {words[:60]!r}") from None
    for scale in scales:
        check_scale(scale)
    return scales


@contextmanager
def _opened(engine_options: options.EngineOptions) -> Iterator[FileEngine]:
    from apps.opened_engine import opened_engine
    from apps.steering import steerable

    with opened_engine(engine_options) as engine:
        yield steerable(engine)


def _found(engine: FileEngine, pairs: list[tuple[str, str]], settings: BuildSettings) -> Directions:
    """`build_directions`, telling how far it is. Raises like it."""
    from apps.steer.build import build_directions

    with Interrupt() as interrupt, progress_line(len(pairs)) as tell:

        def told(done: int) -> None:
            tell(done, f"{done} of {len(pairs)} pairs")

        try:
            return build_directions(engine, pairs, settings, told=told, cancelled=interrupt)
        except Cancelled:
            raise Cancelled("stopped: nothing was written") from None


def _write(out: Path, vector: Path, description: dict[str, Any], directions: Directions) -> None:
    """Both files, each wholly or not at all; the description last."""
    from shared.kv.files.replacement import Replacement
    from shared.steering.directions import write_directions

    write_directions(vector, directions)
    with Replacement(out, private=False) as new:
        new.file.write(json.dumps(description, indent=2).encode() + b"\n")
        new.commit()
