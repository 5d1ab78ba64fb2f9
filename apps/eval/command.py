"""`ds4 eval`: the command line. Exit code 0: nothing failed, 1: something did. Spec: apps §3.3."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from apps import options
from apps.console import say
from apps.eval.ability_suite import AbilitySuite
from apps.eval.case_run import ANSWER_TOKENS
from apps.eval.control_suite import ControlSuite
from apps.eval.selection import parse_counts, refuse_others, select
from apps.eval.start import EvalWish, SuiteWish, run_questions, run_suite
from apps.eval.story_suite import ANSWER_TOKENS as STORY_TOKENS
from apps.eval.story_suite import StorySuite
from apps.output_file import check_writable
from shared.abilities.controls import Control
from shared.errors import UsageError
from shared.evaluation.input_file import read_bytes
from shared.questions.extractor_cases import CASES, failures
from shared.questions.question import Question, read_questions
from shared.questions.regrade import regrade
from shared.questions.think_budget import ThinkLimits
from shared.sampling import Sampling
from shared.story.story import FIRST_FACT, SCENES
from shared.text.effort import Effort

Suite = Literal["embedded", "story"]

LARGEST_TRACE = 1 << 30
DEFAULT_TOKENS = 16_000
DEFAULT_SOFT, DEFAULT_HARD, DEFAULT_RANK = 1024, 512, 3

_BUDGET, _RUN = "Thinking budget", "Run"


def evaluate(
    questions: Annotated[
        Path | None, typer.Argument(metavar="FILE.jsonl", help="The questions, one JSON object a line.")
    ] = None,
    suite: Annotated[
        Suite | None,
        typer.Option(
            "--suite",
            help="Instead of questions: the abilities of the embedded model, or facts of a long story.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    control: Annotated[
        Control | None,
        typer.Option(
            "--control",
            help="--suite embedded: far recall as it is and without the model's far memory, on the reference "
            "backend.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    scenes: Annotated[
        int | None,
        typer.Option(
            "--scenes",
            metavar="N",
            help=f"--suite story: its length, from {FIRST_FACT + 1}.",
            show_default=str(SCENES),
            rich_help_panel=_RUN,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Of a suite: one JSON object instead of lines.", rich_help_panel=_RUN),
    ] = False,
    model: options.ModelOption = None,
    backend: options.BackendOption = "auto",
    script: options.ScriptOption = None,
    ctx: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--ctx",
            metavar="N",
            envvar="DS4_CTX",
            min=1,
            help="Context size in tokens.",
            show_default="what the longest prompt and --tokens need",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--tokens",
            metavar="N",
            envvar="DS4_TOKENS",
            min=1,
            help="Most tokens to generate for one answer; the context's room limits it too.",
            show_default=f"{DEFAULT_TOKENS}; --suite embedded: {ANSWER_TOKENS}, story: {STORY_TOKENS}",
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(
            "--questions",
            metavar="N",
            min=1,
            help="Only the first N; of a suite, N of each ability.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    case_sequence: Annotated[
        str | None,
        typer.Option(
            "--case-sequence",
            metavar="LIST",
            help="These numbers in this order, such as 3,1,1.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    expect_tokens: Annotated[
        str | None,
        typer.Option(
            "--expect-tokens",
            metavar="LIST",
            help="Fail unless the answers have exactly these numbers of tokens: a gate against drift.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Text line by line also on a terminal, no board.", rich_help_panel=_RUN),
    ] = False,
    pause_ms: Annotated[
        int,
        typer.Option(
            "--pause-ms",
            metavar="N",
            min=0,
            max=60_000,
            help="How long the board shows a verdict before it goes on.",
            rich_help_panel=_RUN,
        ),
    ] = 350,
    trace: options.TraceOption = None,
    regrade_trace: Annotated[
        Path | None,
        typer.Option(
            "--regrade-trace",
            metavar="FILE",
            help="Judge the outputs of a trace again, without a model.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    self_test_extractors: Annotated[
        bool,
        typer.Option(
            "--self-test-extractors",
            help="Check that answers are found in known outputs, and exit.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    temperature: options.TemperatureOption = 0.0,
    top_p: options.TopPOption = options.DEFAULT_TOP_P,
    min_p: options.MinPOption = options.DEFAULT_MIN_P,
    seed: options.SeedOption = None,
    think: options.ThinkOption = False,
    think_max: options.ThinkMaxOption = False,
    nothink: options.NoThinkOption = False,
    effort: options.EffortOption = None,
    soft_limit_reply_budget: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="With so many tokens left, thinking ends where </think> is likely.",
            rich_help_panel=_BUDGET,
        ),
    ] = DEFAULT_SOFT,
    hard_limit_reply_budget: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="With so many tokens left, thinking ends.", rich_help_panel=_BUDGET
        ),
    ] = DEFAULT_HARD,
    soft_limit_think_close_rank: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Likely means: one of the N best tokens.",
            rich_help_panel=_BUDGET,
        ),
    ] = DEFAULT_RANK,
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
    """Ask a model questions with known answers, and grade what it says."""
    if self_test_extractors:
        return _self_test()
    if (questions is None) == (suite is None):
        raise UsageError("ds4 eval needs a file of questions, one JSON object a line, or --suite")
    if scenes is not None and suite != "story":
        raise UsageError("--scenes belongs to --suite story")
    if control is not None and suite != "embedded":
        raise UsageError("--control belongs to --suite embedded")
    if trace is not None:
        check_writable(trace)
    engine_options = options.EngineOptions(
        model=model,
        backend="reference" if control is not None and backend == "auto" else backend,
        script=script,
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
    if questions is None:
        refuse_others(
            f"--suite {suite}",
            {
                "--case-sequence": case_sequence,
                "--expect-tokens": expect_tokens,
                "--regrade-trace": regrade_trace,
                "--questions": first if suite == "story" else None,
                "--think": think,
                "--think-max": think_max,
                "--nothink": nothink,
                "--effort": effort,
            },
        )
        chosen_suite: AbilitySuite | ControlSuite | StorySuite
        if suite == "story":
            chosen_suite = StorySuite.make(scenes, tokens)
        elif control is not None:
            chosen_suite = ControlSuite.read(control, first, tokens)
        else:
            chosen_suite = AbilitySuite.read(first, tokens)
        return run_suite(SuiteWish(engine_options, chosen_suite, ctx, as_json, trace))
    refuse_others("a file of questions", {"--json": as_json})
    asked = read_questions(questions)
    if regrade_trace is not None:
        return _regrade(regrade_trace, asked)
    limits = ThinkLimits(
        tokens or DEFAULT_TOKENS,
        soft_limit_reply_budget,
        hard_limit_reply_budget,
        soft_limit_think_close_rank,
    )
    requested = options.requested_effort(think, think_max, nothink, effort)
    _check_limits(limits, requested)
    options.check_seed(seed)
    chosen = select(asked, first, case_sequence)
    expected = None if expect_tokens is None else parse_counts(expect_tokens, len(chosen))
    wish = EvalWish(
        engine_options,
        ctx,
        limits,
        requested,
        Sampling(temperature, top_p, min_p),
        int(time.time()) if seed is None else seed,
        trace,
        plain,
        pause_ms / 1000,
    )
    outcomes = run_questions(wish, chosen)
    failed = any(outcome.status == "FAILED" for outcome in outcomes)
    if expected is not None:
        found = [outcome.generated for outcome in outcomes]
        say(f"generated tokens {found}, expected {expected}", "ds4.ok" if found == expected else "ds4.error")
        failed = failed or found != expected
    return 1 if failed else 0


def _self_test() -> int:
    wrong = failures()
    for line in wrong:
        print(line)
    print(f"extractors: {len(CASES) - len(wrong)} of {len(CASES)} outputs read rightly")
    return 1 if wrong else 0


def _regrade(trace: Path, asked: list[Question]) -> int:
    result = regrade(read_bytes(trace, "the trace", LARGEST_TRACE), asked)
    for line in result.lines:
        print(line)
    print(result.totals())
    return 1 if result.failed or result.parse_errors else 0


def _check_limits(limits: ThinkLimits, effort: Effort) -> None:
    if limits.soft < limits.hard:
        raise UsageError(
            f"--soft-limit-reply-budget {limits.soft} must not be below --hard-limit-reply-budget "
            f"{limits.hard}"
        )
    if effort != "none" and limits.hard >= limits.tokens:
        raise UsageError(
            f"--hard-limit-reply-budget {limits.hard} must be below --tokens {limits.tokens}: nothing would "
            "be left to think with"
        )
