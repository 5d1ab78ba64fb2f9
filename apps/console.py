"""The look of the terminal: one theme, and lines for people on stderr.

Colour only where the stream is a terminal and NO_COLOR is unset (Rich decides). Owns no program's text.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

STYLES = {
    "ds4.timing": "cyan",
    "ds4.ok": "green",
    "ds4.cache": "yellow",
    "ds4.tool": "bright_black",
    "ds4.warning": "dark_orange",
    "ds4.error": "red",
    "ds4.thinking": "bright_black",
    "ds4.muted": "bright_black",
    "ds4.prompt": "bold cyan",
}


def console(stream: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console on `stream` (default stderr) with our styles. Text is printed as it is: no markup, no
    highlighting, no wrapping."""
    from rich.console import Console
    from rich.theme import Theme

    return Console(
        file=stream or sys.stderr,
        theme=Theme(STYLES),
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
        width=width,
    )


def say(line: str, style: str = "", *, on: Console | None = None) -> None:
    """Print one line for people, on stderr by default."""
    (on or console()).print(line, style=style or None)


def sayer(style: str, on: Console | None = None) -> Callable[[str], None]:
    """`say` with its style fixed, for code that only wants to report lines."""
    return partial(say, style=style, on=on)
