"""A run as plain text: a heading, the answer as it comes, the verdict. Spec: apps §3.6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from apps.chat.prefill_progress import PrefillProgress
from apps.chat.reply_printer import ReplyPrinter
from shared.questions.question import Question
from shared.questions.run import Outcome, Watcher
from shared.text.events import TurnEvent

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"PASSED": "ds4.ok", "FAILED": "ds4.error", "SKIPPED": "ds4.warning", "STOPPED": "ds4.warning"}


class PlainWatcher(Watcher):
    """Shows one question on `out`, and its prefill on `err`."""

    def __init__(self, out: Console, err: Console, prompt_tokens: int, chunk: int) -> None:
        self._out = out
        self._progress = PrefillProgress(err, prompt_tokens=prompt_tokens, chunk=chunk)
        self._printer = ReplyPrinter(out)

    def heading(self, number: int, count: int, question: Question) -> None:
        title = f" {question.title}" if question.title else ""
        self._out.print(f"--- {number}/{count} {question.name}{title}", style="ds4.muted")

    def prefill(self, done: int, total: int) -> None:
        self._progress(done, total)

    def token(self, events: Sequence[TurnEvent], generated: int, thinking: bool) -> None:
        self._printer.show(events)

    def verdict(self, question: Question, outcome: Outcome) -> None:
        """The last line of the question."""
        self._progress.close()
        self._printer.end_line()
        closed = "" if outcome.close.kind in ("none", "natural") else f", think_close {outcome.close.kind}"
        self._out.print(
            f"{outcome.status} got {outcome.picked}, expected {question.answer}, {outcome.seconds:.1f} s, "
            f"{outcome.generated} tokens{closed}",
            style=_STYLES[outcome.status],
        )
