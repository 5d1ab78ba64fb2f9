"""The `ds4 chat` command line: reads the options, decides what kind of run it is, and starts it.

Owns option names and their contradictions; the work lies in the modules that it calls.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from apps import options
from apps.threads import limit_threads
from shared.errors import UsageError

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
    )
    work = [
        name
        for name, wanted in (
            ("--inspect", inspect),
            ("--dump-tokens", dump_tokens),
            ("--dump-logits/--dump-logprobs", dump_logits or dump_logprobs),
            ("--perplexity-file", perplexity_file),
        )
        if wanted
    ]
    if len(work) > 1:
        raise UsageError(f"{' and '.join(work)} are different runs: ask for one of them")

    from apps.chat.prompt import read_prompt

    needs_prompt = not (inspect or perplexity_file)
    piped = sys.stdin.buffer if needs_prompt and not sys.stdin.isatty() else None
    source = read_prompt(prompt, prompt_file, prompt_tokens, piped)
    if not needs_prompt and source is not None:
        raise UsageError(f"{work[0]} takes no prompt")
    if work and needs_prompt and source is None:
        raise UsageError(f"{work[0]} needs a prompt: -p TEXT, --prompt-file or --prompt-tokens")

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
    )
    if inspect:
        run.inspect()
    elif dump_tokens and source is not None:
        run.dump_tokens(source)
    elif perplexity_file is not None:
        run.perplexity(perplexity_file)
    elif source is not None and (dump_logits is not None or dump_logprobs is not None):
        run.dump(source, logits=dump_logits, logprobs=dump_logprobs, top_k=logprobs_top_k)
    elif source is not None:
        run.one_shot(source)
    else:
        run.interactive()
