"""How far the reading of prompts is, on stderr."""

from __future__ import annotations

import sys

from shared.quantise.imatrix_reading import ReadingProgress

# Lines of a whole run where they cannot be rewritten.
_LINES = 20


def reading_progress(total: int) -> ReadingProgress:
    """Tells of `total` prompts: on a terminal in one line that is rewritten, else in about 20 lines, one
    whenever another part of the prompts is done."""
    terminal = sys.stderr.isatty()
    told = 0

    def tell(done: int, tokens: int) -> None:
        nonlocal told
        line = f"read {done}/{total} prompts, {tokens} tokens"
        if terminal:
            print(f"\r\x1b[K{line}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif (part := done * _LINES // total) > told:
            told = part
            print(line, file=sys.stderr, flush=True)

    return tell
