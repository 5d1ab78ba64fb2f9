"""How far the reading of prompts is, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shared.quantise.imatrix_reading import ReadingProgress

# Lines of a whole run where they cannot be rewritten.
_LINES = 20


@contextmanager
def reading_progress(total: int) -> Iterator[ReadingProgress]:
    """Tells of `total` prompts: on a terminal in one line that is rewritten, else in about 20 lines, one
    whenever another part of the prompts is done."""
    terminal = sys.stderr.isatty()
    told = 0

    def tell(done: int, tokens: int) -> None:
        nonlocal told
        line, part = f"read {done}/{total} prompts, {tokens} tokens", done * _LINES // total
        if terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif part > told:
            told = part
            print(line, file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if terminal:
            print(file=sys.stderr, flush=True)
