"""What goes into a store and what comes out of it, as values. Must not know: directories, threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.kv.files.cache_file import CacheFile
from shared.kv.files.header import Extension

NO_EXTENSIONS: Final = Extension(0)


@dataclass(frozen=True, slots=True)
class Key:
    """What a state is found by: the text that a later prompt must begin with.

    `extensions` says what kind of text it is (a visible key, or 0 for the rendered tokens themselves).
    """

    text: bytes
    extensions: Extension = NO_EXTENSIONS


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a state is not written. `already_stored`: the file is there, so nothing is missing.

    `obstacle` names the file or directory that stands in the way, and will the next time too.
    """

    why: str
    already_stored: bool = False
    obstacle: Path | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """What became of a save.

    `stored`: the state is on disk, or on its way to it; `why` says why it is not, or why nothing had to be
    written. `bytes` is what is written for it: 0 if the file was there already.
    """

    stored: bool
    why: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session now holds the state of `file`: its `tokens`, and the key `text` that begins the prompt.

    `tool_map` has the sampled block of each tool call in the text that the file remembers.
    """

    tokens: list[int]
    file: CacheFile
    text: bytes
    tool_map: dict[str, bytes]
    milliseconds: int


@dataclass(frozen=True, slots=True)
class ToolMap:
    """Tool calls that a file remembers: the sampled block of each id, and the key text that they stand in."""

    text: bytes
    calls: dict[str, bytes] = field(default_factory=dict)
