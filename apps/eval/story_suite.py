"""`--suite story`: facts of a long story, asked for at its end. Spec: apps §10."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass

from apps.chat.prefill_progress import prefill_progress
from apps.chat.reply_printer import ReplyPrinter
from apps.console import console, say
from apps.trace import Trace
from shared.errors import Cancelled, UsageError
from shared.generate import Generation, GenerationSettings
from shared.sampling import GREEDY
from shared.session import CancelCheck, Engine
from shared.story.scenes import SYSTEM
from shared.story.story import FIRST_FACT, SCENES, Story, make_story, missing
from shared.text.tokenizer import Tokenizer
from shared.text.transcript import Transcript
from shared.text.turn import Turn

ANSWER_TOKENS = 350
_PROFILE = "preview"  # without thinking both generations of checkpoints are asked alike


@dataclass(frozen=True, slots=True)
class StorySuite:
    """One story, and the tokens of the answer."""

    story: Story
    tokens: int

    @classmethod
    def make(cls, scenes: int | None, tokens: int | None) -> StorySuite:
        """None: the whole story. Raises UsageError for a length that no story has."""
        scenes = SCENES if scenes is None else scenes
        if not FIRST_FACT < scenes <= SCENES:
            raise UsageError(f"--scenes must be from {FIRST_FACT + 1} to {SCENES}, not {scenes}")
        return cls(make_story(scenes), tokens or ANSWER_TOKENS)

    def prompt(self, tokenizer: Tokenizer) -> list[int]:
        transcript = Transcript(tokenizer, effort="none", profile=_PROFILE, system=SYSTEM)
        transcript.add_user(self.story.text)
        transcript.begin_answer()
        return transcript.tokens

    def context_needed(self, tokenizer: Tokenizer) -> int:
        """Enough for the story and the answer."""
        return len(self.prompt(tokenizer)) + self.tokens + 1

    def run(
        self, engine: Engine, context: int, *, as_json: bool, trace: Trace, cancelled: CancelCheck
    ) -> int:
        """Show the answer and grade it; returns the exit code: 1 if a fact is missing. Raises Cancelled."""
        tokens = self.prompt(engine.tokenizer)
        answer = self._answer(engine, tokens, context, show=not as_json, cancelled=cancelled)
        lost = missing(self.story, answer)
        found = len(self.story.facts) - len(lost)
        trace.write("story", prompt_tokens=tokens, answer=answer, missing=lost)
        if as_json:
            record = {
                "model": engine.name,
                "backend": engine.backend,
                "prompt_tokens": len(tokens),
                "facts": len(self.story.facts),
                "found": found,
                "missing": [f"{name}={number}" for name, number in lost],
                "answer": answer,
            }
            print(json.dumps(record, indent=2))
        else:
            print(f"story of {len(tokens)} tokens: {found} of {len(self.story.facts)} facts")
            for name, number in lost:
                print(f"  missing {name}={number}")
        return 1 if lost else 0

    def _answer(
        self, engine: Engine, tokens: list[int], context: int, *, show: bool, cancelled: CancelCheck
    ) -> str:
        turn = Turn(thinking=False, tools=None)
        printer = ReplyPrinter(console(sys.stdout))
        with closing(engine.open_session(context)) as session:
            with prefill_progress(engine, session, len(tokens), on=console()) as progress:
                session.sync(tokens, progress, cancelled=cancelled)
            generation = Generation(
                session,
                engine.tokenizer,
                turn,
                GenerationSettings(GREEDY, self.tokens),
                cancelled=cancelled,
                power=engine.power,
            )
            for events in generation:
                if show:
                    printer.show(events)
        if show:
            printer.end_line()
        if generation.cause == "cancelled":
            raise Cancelled
        say(f"answered in {len(generation.tokens)} tokens", "ds4.timing")
        return turn.content
