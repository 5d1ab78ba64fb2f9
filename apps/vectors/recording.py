"""Writing a vector file from what the engine at hand computes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from apps.vectors.cases import VectorFormat
from apps.vectors.checking import prefill_progress
from shared.errors import UsageError
from shared.evaluation.input_file import read_bytes
from shared.evaluation.local_vectors import PromptMode, local_text
from shared.evaluation.official_vectors import official_text
from shared.evaluation.vector_check import (
    LOCAL_CANDIDATES,
    Recording,
    record_local,
    record_official,
)
from shared.session import CancelCheck, Engine

# The last candidates of a long list change places from backend to backend, and a check wants all of an
# answer's candidates found again.
LOCAL_TOP, OFFICIAL_TOP = 64, 5


@dataclass(frozen=True, slots=True)
class RecordingWish:
    """What is to be recorded, in which format; `top` None is the format's own number of candidates."""

    file: Path
    prompts: tuple[Path, ...]
    format: VectorFormat
    mode: PromptMode
    frontier: int | None
    steps: int
    top: int | None
    context: int

    def check(self) -> None:
        """Raises UsageError for what no file could hold, before any model is opened."""
        if self.format == "official" and self.top is not None and self.top > LOCAL_CANDIDATES:
            raise UsageError(f"--top {self.top} is too many: a check looks at the best {LOCAL_CANDIDATES}")
        names = [_name(prompt) for prompt in self.prompts]
        for prompt in self.prompts:
            if any(char.isspace() for char in self._beside(prompt)):
                raise UsageError(f"the vector file cannot name {prompt}: its path holds a blank")
            if names.count(_name(prompt)) > 1:
                raise UsageError(f"two prompts would have the id {_name(prompt)!r}: rename one")

    def write(self, engine: Engine, cancelled: CancelCheck) -> None:
        """Record all prompts, write the file and say so. Raises UsageError, Cancelled."""
        comment = f"recorded by the {engine.backend} backend from {' '.join(engine.name.split())}"
        wanted = [
            Recording(_name(path), self._beside(path), read_bytes(path, "the prompt"), self.context)
            for path in self.prompts
        ]
        if self.format == "local":
            text = local_text(
                [
                    record_local(
                        engine,
                        prompt,
                        self.mode,
                        self.frontier,
                        self.top or LOCAL_TOP,
                        prefill_progress(prompt.name),
                        cancelled,
                    )
                    for prompt in wanted
                ],
                comment,
            )
        else:
            count = self.top or OFFICIAL_TOP
            text = official_text(
                [
                    record_official(
                        engine, prompt, self.steps, count, prefill_progress(prompt.name), cancelled
                    )
                    for prompt in wanted
                ],
                comment,
            )
        self.file.write_text(text, encoding="utf-8")
        print(f"recorded {len(wanted)} prompts in {self.file}")

    def _beside(self, prompt: Path) -> str:
        return os.path.relpath(prompt, self.file.absolute().parent)


def _name(prompt: Path) -> str:
    """The id of a prompt's case: its file's name without the ending, as one word."""
    return re.sub(r"[^\w.-]+", "_", prompt.stem)
