"""The `ds4 chat` command line: reads the options, decides what kind of run it is, and starts it.

Owns option names and their contradictions; the work lies in the modules that it calls.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from apps import options, steering_options
from apps.chat import session_options
from apps.threads import limit_threads
from shared.errors import UsageError

if TYPE_CHECKING:
    from apps.chat.run import Run
    from apps.prompt import Prompt

_PROMPT, _DIAGNOSTICS = "Prompt", "Diagnostics"


def _file_option(name: str, help_text: str, panel: str, metavar: str = "FILE") -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, metavar=metavar, help=help_text, rich_help_panel=panel
    )
    return option


PromptOption = Annotated[
    str | None,
    typer.Option(
        "-p", "--prompt", metavar="TEXT", help="Answer this one prompt and exit.", rich_help_panel=_PROMPT
    ),
]
PromptFileOption = Annotated[
    Path | None, _file_option("--prompt-file", "Answer the prompt in a file and exit.", _PROMPT)
]
PromptTokensOption = Annotated[
    Path | None,
    _file_option("--prompt-tokens", "Exact prompt: a JSON array of token ids.", _PROMPT, "FILE.json"),
]
InspectOption = Annotated[
    bool,
    typer.Option(
        "--inspect", help="Check the model file and print what it is.", rich_help_panel=_DIAGNOSTICS
    ),
]
DumpTokensOption = Annotated[
    bool,
    typer.Option("--dump-tokens", help="Print the tokens of the bare prompt.", rich_help_panel=_DIAGNOSTICS),
]
DumpLogitsOption = Annotated[
    Path | None,
    _file_option("--dump-logits", "Write the logits after the prompt as JSON.", _DIAGNOSTICS),
]
DumpLogprobsOption = Annotated[
    Path | None,
    _file_option("--dump-logprobs", "Write a greedy continuation with its alternatives.", _DIAGNOSTICS),
]
LogprobsTopKOption = Annotated[
    int,
    typer.Option(
        "--logprobs-top-k",
        metavar="N",
        min=1,
        max=128,
        help="Alternatives per step of --dump-logprobs.",
        rich_help_panel=_DIAGNOSTICS,
    ),
]
PerplexityOption = Annotated[
    Path | None,
    _file_option("--perplexity-file", "Score a raw text and print its perplexity.", _DIAGNOSTICS),
]


def chat(
    model: options.ModelOption = None,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    prompt_tokens: PromptTokensOption = None,
    system: options.SystemOption = options.DEFAULT_SYSTEM,
    tokens: options.MaxTokensOption = options.DEFAULT_MAX_TOKENS,
    temp: options.TemperatureOption = options.DEFAULT_TEMPERATURE,
    top_p: options.TopPOption = options.DEFAULT_TOP_P,
    min_p: options.MinPOption = options.DEFAULT_MIN_P,
    seed: options.SeedOption = None,
    think: options.ThinkOption = False,
    think_max: options.ThinkMaxOption = False,
    nothink: options.NoThinkOption = False,
    effort: options.EffortOption = None,
    effort_profile: options.EffortProfileOption = "auto",
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    context: options.ContextOption = options.DEFAULT_CONTEXT,
    prefill_chunk: options.PrefillChunkOption = None,
    load: options.LoadOption = "mmap",
    quality: options.QualityOption = False,
    warm_weights: options.WarmWeightsOption = False,
    threads: options.ThreadsOption = None,
    power: options.PowerOption = options.DEFAULT_POWER,
    simulate_memory: options.SimulateMemoryOption = None,
    trace: options.TraceOption = None,
    resume: session_options.ResumeOption = None,
    sessions_folder: session_options.DirectoryOption = None,
    no_autosave: session_options.NoAutosaveOption = False,
    activation: options.ActivationOption = None,
    dense_index_rows: options.DenseIndexRowsOption = 0,
    dir_steering_file: steering_options.FileOption = None,
    dir_steering_ffn: steering_options.FeedForwardOption = None,
    dir_steering_attn: steering_options.AttentionOption = None,
    inspect: InspectOption = False,
    dump_tokens: DumpTokensOption = False,
    dump_logits: DumpLogitsOption = None,
    dump_logprobs: DumpLogprobsOption = None,
    logprobs_top_k: LogprobsTopKOption = 20,
    perplexity_file: PerplexityOption = None,
) -> None:
    """Talk to the model, or answer one prompt.

    Without a prompt it starts a conversation; text piped into it is one prompt. The answer goes to
    standard output, everything else to standard error.
    """
    limit_threads(threads)
    requested = options.requested_effort(think, think_max, nothink, effort)
    options.check_seed(seed)
    engine_options = options.EngineOptions(
        model=model,
        backend=backend,
        script=script,
        context=context,
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
        steering=steering_options.steering_request(dir_steering_file, dir_steering_ffn, dir_steering_attn),
    )
    wanted = _Examination(inspect, dump_tokens, dump_logits, dump_logprobs, logprobs_top_k, perplexity_file)
    sessions = session_options.session_settings(sessions_folder, no_autosave, resume)
    if wanted.opens_engine:
        from apps.backend import check_named_backend  # it loads NumPy: after the limit of threads

        check_named_backend(backend)
    source = _prompt(wanted.kind(), prompt, prompt_file, prompt_tokens)
    if resume is not None and (source is not None or wanted.kind() is not None):
        raise UsageError("--resume goes on with a conversation: it takes no prompt and no other kind of run")

    from apps.chat.run import Run
    from shared.sampling import Sampling

    run = Run(
        engine_options,
        system=system,
        requested_effort=requested,
        sampling=Sampling(temperature=temp, top_p=top_p, min_p=min_p),
        max_tokens=tokens,
        seed=seed,
        trace=trace,
        sessions=sessions,
    )
    _start(run, wanted, source)


@dataclass(frozen=True, slots=True)
class _Examination:
    """The diagnostics that were asked for instead of an answer."""

    inspect: bool
    tokens: bool
    logits: Path | None
    logprobs: Path | None
    top_k: int
    perplexity: Path | None

    @property
    def opens_engine(self) -> bool:
        return not (self.inspect or self.tokens)

    def kind(self) -> str | None:
        """The option that decides the kind of run; None for an ordinary one. Raises UsageError for two."""
        wanted = {
            "--inspect": self.inspect,
            "--dump-tokens": self.tokens,
            "--dump-logits": self.logits is not None,
            "--dump-logprobs": self.logprobs is not None,
            "--perplexity-file": self.perplexity is not None,
        }
        kinds = [name for name, given in wanted.items() if given]
        if len(kinds) > 1 and kinds != ["--dump-logits", "--dump-logprobs"]:
            raise UsageError(f"{' and '.join(kinds)} are different runs: ask for one of them")
        return kinds[0] if kinds else None


def _prompt(
    kind: str | None, text: str | None, text_file: Path | None, tokens_file: Path | None
) -> Prompt | None:
    """The prompt of a run of this kind, if it has one. Raises UsageError."""
    from apps.prompt import read_prompt

    takes_prompt = kind not in ("--inspect", "--perplexity-file")
    prompt = read_prompt(text, text_file, tokens_file, _piped_input() if takes_prompt else None)
    if prompt is not None and not takes_prompt:
        raise UsageError(f"{kind} takes no prompt")
    if prompt is None and takes_prompt and kind is not None:
        raise UsageError(f"{kind} needs a prompt: -p TEXT, --prompt-file or --prompt-tokens")
    return prompt


def _start(run: Run, wanted: _Examination, prompt: Prompt | None) -> None:
    if wanted.inspect:
        run.inspect()
    elif wanted.perplexity is not None:
        run.perplexity(wanted.perplexity)
    elif prompt is None:
        run.interactive()
    elif wanted.tokens:
        run.dump_tokens(prompt)
    elif wanted.logits is not None or wanted.logprobs is not None:
        run.dump(prompt, logits=wanted.logits, logprobs=wanted.logprobs, top_k=wanted.top_k)
    else:
        run.one_shot(prompt)


def _piped_input() -> BinaryIO | None:
    """Standard input if it is something other than a terminal; closed, it counts as empty."""
    if sys.stdin is None:
        return io.BytesIO()
    return None if sys.stdin.isatty() else sys.stdin.buffer
