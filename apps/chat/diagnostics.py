"""The runs of `ds4 chat` that examine the engine instead of talking to it. Spec: apps §1.5."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from apps.chat import dumps
from apps.chat.interrupt import Interrupt
from apps.chat.perplexity import perplexity
from apps.chat.prefill_progress import PrefillProgress
from apps.chat.settings import ChatSettings
from apps.console import say
from apps.prompt import Prompt
from shared.errors import ModelFileError
from shared.session import Engine
from shared.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Dumps:
    """Files to write after one prefill of the prompt, and how much of it."""

    logits: Path | None
    logprobs: Path | None
    top_k: int


def dump_tokens(prompt: Prompt, tokenizer: Tokenizer) -> None:
    """Print the prompt's tokens exactly as written. The pieces may hold any character, so UTF-8 always."""
    for line in dumps.token_lines(prompt.as_written(tokenizer), tokenizer):
        sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def write_dumps(
    engine: Engine, prompt: Prompt, settings: ChatSettings, wanted: Dumps, *, model: str, err: Console
) -> None:
    """Prefill the prompt once and write the files that `wanted` names. Raises Cancelled."""
    tokens = prompt.encode(
        engine.tokenizer, system=settings.system, effort=settings.effort, profile=engine.effort_profile
    )
    with closing(engine.open_session(settings.context)) as session, Interrupt() as interrupt:
        chunk = engine.memory_plan(settings.context).prefill_chunk
        progress = PrefillProgress(err, prompt_tokens=len(tokens), chunk=chunk)
        session.sync(tokens, progress, cancelled=interrupt)
        if wanted.logits is not None:
            dumps.write_lines(wanted.logits, dumps.logits_json(engine, session, model))
        if wanted.logprobs is not None:
            lines = dumps.logprobs_json(engine, session, steps=settings.max_tokens, top_k=wanted.top_k)
            dumps.write_lines(wanted.logprobs, lines)


def print_perplexity(engine: Engine, text: bytes, settings: ChatSettings, *, err: Console) -> None:
    """Score a raw text and print the one line. Raises Cancelled."""
    tokens = engine.tokenizer.encode_text(text)
    with closing(engine.open_session(settings.context)) as session, Interrupt() as interrupt:
        progress = PrefillProgress(err, prompt_tokens=len(tokens), chunk=4096, verb="score")
        result = perplexity(
            session, tokens, limit=settings.max_tokens, progress=progress, cancelled=interrupt
        )
    print(result.line())


def inspection_lines(summary: dict[str, object]) -> Iterator[str]:
    """A model file's summary for people, one `key: value` a line."""
    for key, value in summary.items():
        shown = value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
        yield f"{key}: {shown}"


def inspect(path: Path, effort_profile: str, *, err: Console) -> None:
    """Open a model file with every check there is and print what it is. Raises ModelFileError, after
    every mismatch found has been shown."""
    from shared.model.open import open_model

    try:
        model = open_model(path, effort_profile=effort_profile)
    except ModelFileError as error:
        for problem in error.problems:
            say(problem, "ds4.error", on=err)
        raise
    with model:
        for line in inspection_lines(model.summary()):
            print(line)
