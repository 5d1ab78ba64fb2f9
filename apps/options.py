"""Option types that several commands share, so that a flag has one name, one variable and one meaning.

A command's function annotates its parameters with these types and gives the defaults below. Options of a
single command live in that command's module. Knows no engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from apps.steering_options import SteeringRequest
from shared.errors import UsageError
from shared.text import prompt_texts

BackendName = Literal["auto", "mlx", "cuda", "reference", "scripted"]
EffortProfile = Literal["auto", "preview", "official"]
EffortLevel = Literal["low", "high", "max"]
LoadMethod = Literal["mmap", "copy"]
ActivationName = Literal["kv", "float", "actq"]

DEFAULT_CONTEXT = 32768
DEFAULT_MAX_TOKENS = 50000
DEFAULT_SYSTEM = prompt_texts.DEFAULT_SYSTEM
DEFAULT_TEMPERATURE, DEFAULT_TOP_P, DEFAULT_MIN_P = 1.0, 1.0, 0.05
DEFAULT_POWER = 100

_ENGINE, _SAMPLING, _THINKING, _DIAGNOSTICS = "Engine", "Sampling", "Thinking", "Diagnostics"

ModelOption = Annotated[
    Path | None,
    typer.Option(
        "-m",
        "--model",
        metavar="FILE",
        envvar="DS4_MODEL",
        show_default="./ds4flash.gguf, else the built-in demonstration model",
        help="The GGUF model file.",
        rich_help_panel=_ENGINE,
    ),
]
BackendOption = Annotated[
    BackendName,
    typer.Option(
        "--backend",
        envvar="DS4_BACKEND",
        help="What computes: MLX, CUDA, the slow NumPy reference, or a script.",
        rich_help_panel=_ENGINE,
    ),
]
ScriptOption = Annotated[
    Path | None,
    typer.Option(
        "--script",
        metavar="FILE.json",
        envvar="DS4_SCRIPT",
        help="Script of the scripted backend, an engine without weights.",
        rich_help_panel=_ENGINE,
    ),
]
ContextOption = Annotated[
    int,
    typer.Option(
        "-c",
        "--ctx",
        metavar="N",
        envvar="DS4_CTX",
        min=1,
        help="Context size in tokens.",
        rich_help_panel=_ENGINE,
    ),
]
PrefillChunkOption = Annotated[
    int | None,
    typer.Option(
        "--prefill-chunk",
        metavar="N",
        envvar=["DS4_PREFILL_CHUNK", "DS4_METAL_PREFILL_CHUNK"],
        show_default="4096",
        help="Tokens per prefill step; 0 or less: the whole prompt in one step.",
        rich_help_panel=_ENGINE,
    ),
]
SimulateMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--simulate-memory",
        metavar="SIZE",
        envvar="DS4_SIMULATE_MEMORY",
        help="Check first that all would fit a Mac with this much memory, for example 64GB.",
        rich_help_panel=_ENGINE,
    ),
]
EffortProfileOption = Annotated[
    EffortProfile,
    typer.Option(
        "--effort-profile",
        envvar="DS4_EFFORT_PROFILE",
        help="Which generation of effort texts the checkpoint was trained with.",
        rich_help_panel=_THINKING,
    ),
]
LoadOption = Annotated[
    LoadMethod,
    typer.Option(
        "--load",
        envvar="DS4_LOAD",
        help="Map the weights from the file where the backend can, or copy them.",
        rich_help_panel=_ENGINE,
    ),
]
QualityOption = Annotated[
    bool,
    typer.Option(
        "--quality",
        envvar="DS4_QUALITY",
        help="Keep in float32 what kernels would hand on in float16 or, on CUDA, in 8 bits; slower.",
        rich_help_panel=_ENGINE,
    ),
]
WarmWeightsOption = Annotated[
    bool,
    typer.Option(
        "--warm-weights",
        envvar="DS4_WARM_WEIGHTS",
        help="Read the whole model file before the first prompt.",
        rich_help_panel=_ENGINE,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "-t",
        "--threads",
        metavar="N",
        envvar="DS4_THREADS",
        min=1,
        show_default="all cores",
        help="Threads of the host's numeric libraries.",
        rich_help_panel=_ENGINE,
    ),
]
PowerOption = Annotated[
    int,
    typer.Option(
        "--power",
        metavar="N",
        envvar="DS4_POWER",
        min=1,
        max=100,
        help="Percent of the time to work; below 100 the machine rests in between.",
        rich_help_panel=_ENGINE,
    ),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        envvar="DS4_TRACE",
        help="Write prompts, tokens and outcomes to FILE, readable by you only.",
        rich_help_panel=_ENGINE,
    ),
]
ActivationOption = Annotated[
    ActivationName | None,
    typer.Option(
        "--activation",
        envvar="DS4_ACTIVATION",
        show_default="actq on CUDA without --quality, else kv",
        help="Arithmetic: kv rounds cached rows as the model does, float rounds nothing, actq also rounds "
        "the inputs of matrices to 8 bits (CUDA and reference backends).",
        rich_help_panel=_DIAGNOSTICS,
    ),
]
DenseIndexRowsOption = Annotated[
    int,
    typer.Option(
        "--dense-index-rows",
        metavar="N",
        envvar="DS4_DENSE_INDEX_ROWS",
        min=0,
        help="Generate with attention to all compressed rows while there are at most N, without the "
        "indexer's choice; 1024 is what GPU builds of the C engine do.",
        rich_help_panel=_DIAGNOSTICS,
    ),
]
SystemOption = Annotated[
    str,
    typer.Option("-sys", "--system", metavar="TEXT", envvar="DS4_SYSTEM", help="System text; '' for none."),
]
MaxTokensOption = Annotated[
    int,
    typer.Option(
        "-n",
        "--tokens",
        metavar="N",
        envvar="DS4_TOKENS",
        min=1,
        help="Most tokens to generate for one answer; the context's room limits it too.",
        rich_help_panel=_SAMPLING,
    ),
]
TemperatureOption = Annotated[
    float,
    typer.Option(
        "--temp",
        metavar="F",
        envvar="DS4_TEMP",
        min=0,
        max=100,
        help="Sampling temperature; 0 always takes the likeliest token, which is for tests and can loop.",
        rich_help_panel=_SAMPLING,
    ),
]
TopPOption = Annotated[
    float,
    typer.Option(
        "--top-p",
        metavar="F",
        envvar="DS4_TOP_P",
        min=0,
        max=1,
        help="Keep the likeliest tokens up to this total probability.",
        rich_help_panel=_SAMPLING,
    ),
]
MinPOption = Annotated[
    float,
    typer.Option(
        "--min-p",
        metavar="F",
        envvar="DS4_MIN_P",
        min=0,
        max=1,
        help="Drop tokens below this share of the likeliest one's probability.",
        rich_help_panel=_SAMPLING,
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        envvar="DS4_SEED",
        min=1,
        show_default="from the clock",
        help="Seed of the random stream.",
        rich_help_panel=_SAMPLING,
    ),
]

# What each switch of thinking says no to.
_CONTRARY = {
    "think": ("nothink",),
    "think_max": ("nothink", "effort"),
    "nothink": ("think", "think_max", "effort"),
}


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the option of that Python name stands on the command line, so far as that is read."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _unless_overruled(context: typer.Context, parameter: typer.CallbackParam, value: bool) -> bool:
    """A switch that a variable or a file turned on gives way to a contrary one on the command line, whose
    options are read first."""
    name = parameter.name or ""
    overruled = any(is_given(context, other) for other in _CONTRARY[name])
    return value and (is_given(context, name) or not overruled)


ThinkOption = Annotated[
    bool,
    typer.Option(
        "--think",
        envvar="DS4_THINK",
        callback=_unless_overruled,
        help="Think before answering (the default).",
        rich_help_panel=_THINKING,
    ),
]
ThinkMaxOption = Annotated[
    bool,
    typer.Option(
        "--think-max",
        envvar="DS4_THINK_MAX",
        callback=_unless_overruled,
        help="Think with the greatest effort.",
        rich_help_panel=_THINKING,
    ),
]
NoThinkOption = Annotated[
    bool,
    typer.Option(
        "--nothink",
        envvar="DS4_NOTHINK",
        callback=_unless_overruled,
        help="Answer without thinking.",
        rich_help_panel=_THINKING,
    ),
]
EffortOption = Annotated[
    EffortLevel | None,
    typer.Option(
        "--effort",
        envvar="DS4_EFFORT",
        show_default="high",
        help="How hard to think.",
        rich_help_panel=_THINKING,
    ),
]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What `apps.backend.open_engine` needs to know. `context`, `sessions` and `checkpoint_bytes` are only
    used to check that so many sessions of that size, and the points that they can go back to, fit in memory
    before anything is allocated."""

    model: Path | None = None
    backend: BackendName = "auto"
    script: Path | None = None
    context: int = DEFAULT_CONTEXT
    prefill_chunk: int | None = None
    simulate_memory: str | None = None
    effort_profile: EffortProfile = "auto"
    load: LoadMethod = "mmap"
    quality: bool = False
    warm_weights: bool = False
    threads: int | None = None
    power: int = DEFAULT_POWER
    activation: ActivationName | None = None  # the backend's own
    dense_index_rows: int = 0
    sessions: int = 1
    checkpoint_bytes: int = 0
    steering: SteeringRequest | None = None


def check_seed(seed: int | None) -> None:
    """Raises UsageError for a seed that the 64-bit random stream would take for a smaller one."""
    if seed is not None and seed >= 2**64:
        raise UsageError(f"--seed {str(seed)[:24]} is too large: the largest is {2**64 - 1}")


def requested_effort(
    think: bool, think_max: bool, nothink: bool, effort: EffortLevel | None
) -> Literal["none", "low", "high", "max"]:
    """The effort the thinking flags ask for: `high` without any, the greatest one given wins. Thinking
    and not thinking at once is a UsageError."""
    if nothink and (think or think_max):
        given = "--think-max" if think_max else "--think"
        raise UsageError(f"--nothink contradicts {given}: give one of them")
    if nothink:
        return "none"
    return "max" if think_max else effort or "high"
