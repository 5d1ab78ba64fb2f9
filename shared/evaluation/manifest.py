"""The list of texts that a model is to predict: prompts and their continuations. Spec: apps §8.4."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared.errors import UsageError
from shared.evaluation.input_file import beside, read_bytes, read_lines

_WHAT = "the manifest"


@dataclass(frozen=True, slots=True)
class ScoreCase:
    """One prompt and what followed it, as UTF-8 bytes."""

    id: str
    prompt: bytes
    continuation: bytes


def read_manifest(path: Path) -> list[ScoreCase]:
    """The cases of a manifest, in its order, with all their texts.

    A line holds, with tabs between them, an id, the prompt's file, the continuation's file and, if one was
    kept, the file of the whole response, which is not read; empty lines and those that begin with `#` say
    nothing. File names are relative to the manifest's folder, or else to the working folder. Raises
    UsageError with the line.
    """
    cases: dict[str, ScoreCase] = {}
    for number, line in enumerate(read_lines(path, _WHAT), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = line.split("\t")
        where = f"{_WHAT} {path}, line {number}"
        if len(columns) not in (3, 4) or not all(column.strip() for column in columns[:3]):
            raise UsageError(
                f"{where}: expected an id, a prompt file and a continuation file with tabs between them"
            )
        name = columns[0].strip()
        if not name.isprintable():
            raise UsageError(f"{where}: the id {name!r} holds characters that cannot be shown")
        if name in cases:
            raise UsageError(f"{where}: the id {name!r} occurs twice")
        texts = []
        for noun, column in zip(("prompt", "continuation"), columns[1:3], strict=True):
            text = read_bytes(beside(path, column.strip()), f"{where}: the {noun}")
            if not text:
                raise UsageError(f"{where}: the {noun} {column.strip()} is empty")
            texts.append(text)
        cases[name] = ScoreCase(name, *texts)
    if not cases:
        raise UsageError(f"{_WHAT} {path} lists no case")
    return list(cases.values())
