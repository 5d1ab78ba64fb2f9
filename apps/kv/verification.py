"""`ds4 kv verify`: whether a cache file is what it says it is, with or without its model at hand.

Reads the whole file, in pieces; changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from apps.kv.model_check import ModelCheck
from shared.errors import CacheFileError, DamagedFile, ForeignFile, PayloadDamaged, PayloadError
from shared.kv.files.cache_file import CacheFile, cache_name
from shared.kv.files.cache_reader import CacheReader, open_cache_file
from shared.kv.files.header import Extension, Reason
from shared.kv.files.payload_outline import PayloadOutline, read_outline
from shared.kv.files.trailers import encode_tool_map
from shared.kv.sessions.identity import SYSTEM_PROMPT_NAME, session_name
from shared.scripted.payload import MAGIC as SCRIPTED_MAGIC
from shared.scripted.payload import read_payload as read_scripted

State = Literal["ok", "damaged", "foreign"]
_ANY_CONTEXT = 2**32


@dataclass(slots=True)
class Verdict:
    """What was found: `problems` make a file damaged; `foreign` says why it is none of ours, or not of this
    model; `notes` say what could not be checked or is merely odd."""

    path: Path
    problems: list[str] = field(default_factory=list)
    foreign: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def state(self) -> State:
        if self.problems:
            return "damaged"
        return "ok" if self.foreign is None else "foreign"

    def record(self) -> dict[str, Any]:
        """The verdict, ready for JSON."""
        return {
            "path": str(self.path),
            "state": self.state,
            "problems": self.problems,
            "foreign": self.foreign,
            "notes": self.notes,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """The verdict for people: lines and their styles."""
        style = {"ok": "ds4.ok", "damaged": "ds4.error", "foreign": "ds4.muted"}[self.state]
        yield f"{self.state:<8}  {self.path}", style
        for problem in self.problems:
            yield f"          {problem}", "ds4.error"
        for note in [*([self.foreign] if self.foreign else []), *self.notes]:
            yield f"          {note}", "ds4.muted"


def verify_file(path: Path, model: ModelCheck | None = None) -> Verdict:
    """Check everything that can be checked of `path`. Raises OSError when it cannot be read."""
    verdict = Verdict(path)
    try:
        with open_cache_file(path) as reader:
            _check(reader, verdict, model)
    except ForeignFile as error:
        verdict.foreign = str(error)
    except CacheFileError as error:
        verdict.problems.append(str(error))
    return verdict


def _check(reader: CacheReader, verdict: Verdict, model: ModelCheck | None) -> None:
    file, text = reader.file, reader.text()
    title = _check_trailers(reader, verdict)
    verdict.problems += _name_problems(file, text, title, verdict)
    outline = _check_payload(reader, verdict)
    _check_sidecar(reader, verdict)
    if model is not None:
        finding = model.compare(file, text, outline)
        verdict.problems += finding.problems
        verdict.notes += finding.notes
        verdict.foreign = finding.other_model


def _name_problems(file: CacheFile, text: bytes, title: bytes | None, verdict: Verdict) -> Iterator[str]:
    """A file is found by its name, so the name must follow from what it holds."""
    if file.name == SYSTEM_PROMPT_NAME and file.header.reason is Reason.AGENT_SYSTEM:
        return
    if title is not None:
        expected, what = session_name(title, file.header.created_at), "title and time do"
    else:
        expected, what = cache_name(text), "text does"
    if len(file.name) != len(expected):
        verdict.notes.append(f"nothing finds it under this name, which should be {expected}")
    elif file.name != expected:
        yield f"its {what} not hash to its name but to {expected}"


def _check_trailers(reader: CacheReader, verdict: Verdict) -> bytes | None:
    file, title = reader.file, None
    known = 0
    flags = file.header.extensions
    if flags & Extension.TITLE:
        try:
            title = reader.title()
        except DamagedFile as error:
            verdict.problems.append(str(error))
        known += 4 + len(title or b"")
    if flags & Extension.TOOL_MAP:
        calls = reader.tool_map()
        known += len(encode_tool_map(calls))
        if not calls:
            verdict.notes.append("its tool map cannot be read: these calls are rendered anew")
    spare = file.size - file.trailer_at - known
    if spare > 0:
        verdict.notes.append(f"{spare} bytes at its end belong to nothing that is known")
    return title


def _check_payload(reader: CacheReader, verdict: Verdict) -> PayloadOutline | None:
    file = reader.file
    if not file.header.payload_bytes:
        verdict.notes.append("it has no payload: a stripped session")
        return None
    try:
        if _is_scripted(file):
            _check_scripted(reader)
            verdict.notes.append("its payload is of the scripted engine")
            return None
        outline = read_outline(reader.payload(), file.header.payload_bytes)
    except PayloadError as error:
        verdict.problems.append(f"payload: {error}")
        return None
    words = outline.words
    if words.tokens != file.header.tokens:
        verdict.problems.append(f"its header says {file.header.tokens} tokens, its payload {words.tokens}")
    if words.context != file.header.context:
        verdict.problems.append(
            f"its header says a context of {file.header.context}, its payload {words.context}"
        )
    if outline.untold_layers:
        verdict.notes.append(
            f"{words.tokens} tokens do not tell the ratio of {outline.untold_layers} of {words.layers} "
            "layers: the total size fits some choice of them"
        )
    return outline


def _is_scripted(file: CacheFile) -> bool:
    with file.path.open("rb") as raw:
        return os.pread(raw.fileno(), len(SCRIPTED_MAGIC), file.payload_at) == SCRIPTED_MAGIC


def _check_scripted(reader: CacheReader) -> None:
    saved = read_scripted(reader.payload(), reader.file.header.payload_bytes, _ANY_CONTEXT)
    if len(saved.tokens) != reader.file.header.tokens:
        raise PayloadDamaged(
            f"its header says {reader.file.header.tokens} tokens, its payload {len(saved.tokens)}"
        )


def _check_sidecar(reader: CacheReader, verdict: Verdict) -> None:
    whole = reader.verify_checksum()
    if whole is None:
        verdict.notes.append("it has no checksum: a changed byte of a tensor would go unnoticed")
    elif not whole:
        verdict.problems.append("its text or payload is not what the checksum beside it was made of")
