"""Shows a reply as it comes: thinking dimmed, answer plain, think tags never.

Knows turn events and a console; nothing of tokens or engines.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.text.events import TextDelta, ThinkingDelta, TurnEvent

if TYPE_CHECKING:
    from rich.console import Console


class ReplyPrinter:
    """Writes events to `console`. Off a terminal the text goes out exactly as generated; on one,
    control characters are dropped, since a reply must not drive the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_thinking = False
        self._at_line_start = True

    def show(self, events: Sequence[TurnEvent]) -> None:
        """Print what `events` add."""
        for event in events:
            if isinstance(event, ThinkingDelta):
                self._in_thinking = True
                self._write(event.text, "ds4.thinking")
            elif isinstance(event, TextDelta):
                if self._in_thinking:
                    self._in_thinking = False
                    self.end_line()
                self._write(event.text, None)

    def end_line(self) -> None:
        """Start a new line unless the cursor already stands on one."""
        if not self._at_line_start:
            self._write("\n", None)

    def _write(self, text: str, style: str | None) -> None:
        if self._console.is_terminal:
            text = printable(text)
            self._console.print(text, style=style, end="")
        else:
            self._console.file.write(text)
            self._console.file.flush()
        if text:
            self._at_line_start = text.endswith("\n")


def printable(text: str) -> str:
    """`text` without control characters other than newline and tab."""
    if text.isprintable():
        return text
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")
