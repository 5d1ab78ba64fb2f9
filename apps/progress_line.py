"""How far work is that is counted, on stderr. Must not know: what is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Lines of a whole run where they cannot be rewritten.
_LINES = 20


@contextmanager
def progress_line(total: int) -> Iterator[Callable[[int, str], None]]:
    """Takes how many of `total` are done and a line that says so: on a terminal it is rewritten, and ended
    however the work ends; else about 20 lines are printed, one whenever another part is done."""
    terminal = sys.stderr.isatty()
    begun, told = False, 0

    def tell(done: int, line: str) -> None:
        nonlocal begun, told
        if terminal:
            begun = True
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif (part := done * _LINES // total) > told:
            told = part
            print(line, file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if begun:
            print(file=sys.stderr, flush=True)
