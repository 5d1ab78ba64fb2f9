"""Shows how far a prefill is: a bar that rewrites itself on a terminal, one line per chunk elsewhere.

Spec: apps §1.4. Knows token counts and the size of a session's steps; no tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from shared.session import Engine, Session

if TYPE_CHECKING:
    from rich.console import Console

_BAR_CELLS = 24
_CLEAR_TO_END = "\x1b[K"


class PrefillProgress:
    """A `Progress` for `Session.sync`. `prompt_tokens` is the length of the whole prompt, `chunk` the
    tokens of a full prefill step: finer steps print no line of their own off a terminal. `verb` names
    the work."""

    def __init__(self, console: Console, *, prompt_tokens: int, chunk: int, verb: str = "prefill") -> None:
        self._console = console
        self._verb = verb
        self._prompt_tokens = prompt_tokens
        self._chunk = max(1, chunk)
        self._last_line_at = 0
        self._open_line = False

    def __call__(self, done: int, total: int) -> None:
        if total <= 0:
            return
        if self._console.is_terminal:
            self._rewrite(done, total)
        elif done > 0 and (done >= total or done - self._last_line_at >= self._chunk):
            self._last_line_at = done
            self._console.print(self._figures(done, total), style="ds4.timing")

    def close(self) -> None:
        """End the open line of an interrupted prefill."""
        if self._open_line:
            self._open_line = False
            self._console.print()

    def _rewrite(self, done: int, total: int) -> None:
        # A line that wraps cannot be rewritten: the last column stays free.
        room = self._console.width - 1
        figures = self._figures(done, total)[:room]
        cells = max(0, min(_BAR_CELLS, room - len(figures) - 1))
        full = round(cells * done / total)
        bar = "━" * full + "╺" * (cells - full)
        self._console.file.write("\r")
        self._console.print(f"{figures} {bar}".rstrip(), style="ds4.timing", end="")
        self._console.file.write(_CLEAR_TO_END)
        self._console.file.flush()
        self._open_line = True
        if done >= total:
            self.close()

    def _figures(self, done: int, total: int) -> str:
        return f"{self._verb} {self._prompt_tokens} tokens: {done}/{total} ({100 * done / total:.1f}%)"


@contextmanager
def prefill_progress(
    engine: Engine, session: Session, prompt_tokens: int, *, on: Console, verb: str = "prefill"
) -> Iterator[PrefillProgress]:
    """The progress of one `sync` of `session`, its line ended however that ends."""
    chunk = engine.memory_plan(session.context).prefill_chunk
    progress = PrefillProgress(on, prompt_tokens=prompt_tokens, chunk=chunk, verb=verb)
    with closing(progress):
        yield progress
