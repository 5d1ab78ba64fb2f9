"""Consoles that write to a string: one like a terminal of fixed width, one like a file."""

from __future__ import annotations

import io

from rich.console import Console
from rich.theme import Theme

from apps.console import STYLES


class Recorded:
    """A console of our theme and the text written to it."""

    def __init__(self, *, terminal: bool, width: int = 80, colors: bool = True) -> None:
        self._stream = io.StringIO()
        self.console = Console(
            file=self._stream,
            theme=Theme(STYLES),
            markup=False,
            emoji=False,
            highlight=False,
            soft_wrap=True,
            width=width,
            force_terminal=terminal,
            color_system="standard" if terminal and colors else None,
            _environ={},
        )

    @property
    def text(self) -> str:
        return self._stream.getvalue()


def terminal(*, colors: bool = True, width: int = 80) -> Recorded:
    """As on a terminal of 80 columns."""
    return Recorded(terminal=True, colors=colors, width=width)


def file() -> Recorded:
    """As in a pipe or a file."""
    return Recorded(terminal=False)
