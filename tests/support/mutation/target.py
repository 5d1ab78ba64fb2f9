"""A text that kernels are put together from, and the test cases that its broken copies must fail."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.ksim.mutants import Mutant, mutants

# Takes what `Target.subject` gives, and raises if a kernel is wrong.
Case = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Target(ABC):
    """A file with kernel text and the test modules whose cases are run on it; another process can have it.

    Class attributes: `results` is the folder of the results, `program` what writes them, `rounding` names
    functions of the kernels that round their first argument.
    """

    path: Path
    modules: tuple[str, ...]

    results: ClassVar[Path]
    program: ClassVar[str]
    rounding: ClassVar[tuple[str, ...]]

    @property
    def name(self) -> str:
        """As in "attend.prefill" or, of a shared text, "headers.sums"."""
        folder = self.path.parent.name
        return folder if self.path.stem == "kernel" else f"{folder}.{self.path.stem}"

    @property
    def result(self) -> Path:
        return self.results / f"{self.name}.json"

    @property
    @abstractmethod
    def text(self) -> str:
        """What is broken: the text without comments."""

    @abstractmethod
    def cases(self) -> dict[str, Case]:
        """All cases of the modules, by "module: case" without "test_"."""

    @abstractmethod
    def subject(self, check: str, seed: int, broken: str, uses: list[str] | None = None) -> Any:
        """What cases take: kernels in the simulator, with these settings of it, that have `broken` in the
        place of the text; names of those that had the text go to `uses`."""

    def digest(self) -> str:
        """Of what means something in the text: rewording a comment or unrolling a loop changes nothing."""
        lines = [line for line in self.text.splitlines() if line and not line.startswith("#pragma")]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def mutants(self) -> list[Mutant]:
        return mutants(self.text, self.rounding)
