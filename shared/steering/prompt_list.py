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


def read_pairs(good: Path, bad: Path) -> list[tuple[str, str]]:
    """The prompts of two files side by side, up to the end of the shorter. Raises UsageError."""
    return list(zip(read_prompts(good), read_prompts(bad), strict=False))
