"""A vector file with the prompts that it names: which of the two formats it is, and what is to be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shared.errors import UsageError
from shared.evaluation.input_file import beside, read_bytes
from shared.evaluation.local_vectors import LocalCase, read_local
from shared.evaluation.official_vectors import OfficialCase, read_official
from shared.evaluation.vector_lines import VectorLines

VectorFormat = Literal["local", "official"]

# The server and the published implementation disagree on this prompt.
SKIPPED = ("long_memory_archive",)
_WORDS_OF_A_LOCAL_CASE = 7


@dataclass(frozen=True, slots=True)
class Cases:
    """What to run, each with the bytes of its prompt, and the ids of what is left out."""

    format: VectorFormat
    wanted: Sequence[tuple[LocalCase | OfficialCase, bytes]]
    skipped: Sequence[str]

    @property
    def context(self) -> int:
        """The largest of all cases."""
        return max(case.context for case, _ in self.wanted)


def read_cases(path: Path, wish: Sequence[str] | None) -> Cases:
    """Read a vector file and all prompts, but for the cases that `wish` leaves out (None: those of SKIPPED
    that it has). Raises UsageError for whatever cannot be read, an id that no case has, and where nothing is
    left to run."""
    first = VectorLines(path).peek()
    if not first:
        raise UsageError(f"the vector file {path} is empty: it holds no case")
    local = len(first) == _WORDS_OF_A_LOCAL_CASE
    cases: Sequence[LocalCase | OfficialCase] = read_local(path) if local else read_official(path)
    skip = SKIPPED if wish is None else wish
    unknown = [id for id in wish or () if id not in {case.id for case in cases}]
    if unknown:
        raise UsageError(f"--skip {unknown[0]}: {path} has no such case")
    wanted = [
        (case, read_bytes(beside(path, case.prompt_file), f"the prompt of case {case.id!r},"))
        for case in cases
        if case.id not in skip
    ]
    if not wanted:
        raise UsageError(f"every case of {path} is left out by --skip")
    return Cases("local" if local else "official", wanted, [case.id for case in cases if case.id in skip])
