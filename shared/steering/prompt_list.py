"""Files of prompts, one a line. Spec: apps §9. Must not know: what the prompts are for."""

from __future__ import annotations

from pathlib import Path

from shared.errors import UsageError
from shared.evaluation.input_file import read_lines


def read_prompts(path: Path) -> list[str]:
    """The lines of a UTF-8 text without blank ones and without those that begin with `#`.

    Raises UsageError for a file that cannot be read or holds no prompt.
    """
    lines = (line.strip() for line in read_lines(path, "the prompt file"))
    prompts = [line for line in lines if line and not line.startswith("#")]
    if not prompts:
        raise UsageError(f"the prompt file {path} holds no prompt: one a line, `#` begins a remark")
    return prompts


def read_pairs(good: Path, bad: Path) -> tuple[list[tuple[str, str]], int]:
    """The prompts of two files side by side, up to the end of the shorter, and how many of the longer are
    left over. Raises UsageError."""
    first, second = read_prompts(good), read_prompts(bad)
    return list(zip(first, second, strict=False)), abs(len(first) - len(second))
