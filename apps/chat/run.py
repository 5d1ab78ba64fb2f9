"""The kinds of run behind `ds4 chat`: opens what each needs, says what was opened, and closes it.

Knows engines through `apps.backend` only; option names belong to `command`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from apps.backend import open_engine, open_tokenizer
from apps.chat.answer import Answerer
from apps.chat.settings import ChatSettings, SessionSettings
from apps.console import console, say, sayer
from apps.model_choice import choose_model
from apps.options import EngineOptions
from apps.output_file import check_writable
from apps.prompt import Prompt, read_file
from apps.startup import engine_notes, thinking_line
from apps.trace import Trace
from shared.errors import UsageError
from shared.sampling import Sampling
from shared.session import Engine
from shared.text.effort import Effort, resolve_effort

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for, before any engine is open. One of the methods is called, once."""

    engine_options: EngineOptions
    system: str
    requested_effort: Effort
    sampling: Sampling
    max_tokens: int
    seed: int | None
    trace: Path | None
    sessions: SessionSettings

    def inspect(self) -> None:
        """Print the summary of the model file."""
        from apps.chat.diagnostics import inspect

        choice = choose_model(self.engine_options.model)
        if choice.note:
            say(choice.note, "ds4.warning")
        inspect(choice.path, self.engine_options.effort_profile, err=console())

    def dump_tokens(self, prompt: Prompt) -> None:
        """Print the prompt's tokens; opens no engine."""
        from apps.chat.diagnostics import dump_tokens

        dump_tokens(prompt, open_tokenizer(self.engine_options))

    def perplexity(self, text_file: Path) -> None:
        """Score a text. Raises UsageError for an empty one before a model is opened."""
        from apps.chat.diagnostics import print_perplexity

        text = read_file(text_file)
        if not text:
            raise UsageError(f"--perplexity-file {text_file} is empty: there is nothing to score")
        with self._engine() as engine:
            print_perplexity(engine, text, self._settings(engine), err=console())

    def dump(self, prompt: Prompt, *, logits: Path | None, logprobs: Path | None, top_k: int) -> None:
        """Write dump files."""
        from apps.chat.diagnostics import Dumps, write_dumps

        for path in (logits, logprobs):
            if path is not None:
                check_writable(path)
        with self._engine() as engine:
            wanted = Dumps(logits=logits, logprobs=logprobs, top_k=top_k)
            write_dumps(
                engine, prompt, self._settings(engine), wanted, model=self._file_name(engine), err=console()
            )

    def one_shot(self, prompt: Prompt) -> None:
        """Answer one prompt. Raises Cancelled on Ctrl+C."""
        from apps.chat.one_shot import answer_once

        err = console()
        with self._trace(err) as trace, self._engine() as engine:
            answerer = Answerer(engine, out=console(sys.stdout), err=err)
            answer_once(engine, prompt, self._settings(engine), answerer, err=err, trace=trace)

    def interactive(self) -> None:
        """Hold a conversation until the user leaves. Raises UnusableSession for one it cannot resume."""
        from apps.chat.history import history_path
        from apps.chat.keyboard import line_reader
        from apps.chat.loop import ChatLoop
        from apps.chat.quiet_terminal import quiet_terminal
        from apps.chat.saved_conversation import open_conversation

        err = console()
        with quiet_terminal(), self._trace(err) as trace, self._engine() as engine:
            answerer = Answerer(engine, out=console(sys.stdout), err=err)
            with open_conversation(engine, self._settings(engine), answerer, self.sessions, err=err) as (
                conversation,
                sessions,
            ):
                loop = ChatLoop(
                    engine,
                    conversation,
                    line_reader(history_path(), when_idle=sessions.idle),
                    err=err,
                    trace=trace,
                    check_context=lambda context: self._check_context(engine, context),
                    sessions=sessions,
                )
                loop.handle("/help")
                loop.run()

    def _trace(self, err: Console) -> Trace:
        return Trace(self.trace, say=sayer("ds4.warning", err))

    @contextmanager
    def _engine(self) -> Iterator[Engine]:
        err = console()
        timing = sayer("ds4.timing", err)
        engine = open_engine(self.engine_options, say=sayer("ds4.warning", err), say_plan=timing)
        try:
            for note in engine_notes(engine):
                say(note, "ds4.warning", on=err)
            effort, downgrade = self._effort(engine)
            if downgrade:
                say(downgrade, "ds4.warning", on=err)
            say(thinking_line(engine, effort), "ds4.timing", on=err)
            yield engine
        finally:
            engine.close()

    def _effort(self, engine: Engine) -> tuple[Effort, str | None]:
        return resolve_effort(self.requested_effort, engine.effort_profile, self.engine_options.context)

    def _settings(self, engine: Engine) -> ChatSettings:
        return ChatSettings(
            context=self.engine_options.context,
            system=self.system,
            effort=self._effort(engine)[0],
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )

    def _check_context(self, engine: Engine, context: int) -> None:
        from apps.memory import check_fits, memory_budget

        budget = memory_budget(self.engine_options.simulate_memory)
        check_fits(engine.memory_plan(context), budget, engine.memory_plan)

    def _file_name(self, engine: Engine) -> str:
        if engine.backend == "scripted":
            return engine.name
        return choose_model(self.engine_options.model).path.name
