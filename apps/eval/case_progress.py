"""How far a run over many cases is: a bar on a terminal, now and then a line elsewhere. Knows no cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from apps.console import console, say

if TYPE_CHECKING:
    from rich.console import Console

_CASES_A_LINE = 20


@contextmanager
def case_progress(verb: str, total: int, on: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Tells on stderr that `total` cases are to come; the function is called with a few words about each
    case that is done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = on or console()
    columns = (
        TextColumn(verb),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    done = 0
    if not screen.is_terminal:
        say(f"{total} cases to be {verb}", "ds4.timing", on=screen)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("", total=total)

        def advance(words: str) -> None:
            nonlocal done
            done += 1
            progress.update(task, advance=1, description=words)
            if not screen.is_terminal and (done % _CASES_A_LINE == 0 or done == total):
                say(f"{verb} {done}/{total} {words}".rstrip(), "ds4.timing", on=screen)

        yield advance
