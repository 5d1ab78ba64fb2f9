"""Which folders of saved states there are, and which file a word on the command line means.

Reads directory listings only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apps.kv_folder import named_folder, sessions_folder, store_folder
from shared.errors import CacheFileError, UsageError
from shared.kv.files.cache_file import is_cache_name
from shared.kv.sessions.identity import SYSTEM_PROMPT_NAME

_PREFIX = re.compile(r"[0-9a-fA-F]{1,40}(\.kv)?")

PlaceKind = Literal["prompt states", "chat sessions", "named folder"]


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of cache files, and whose it is."""

    folder: Path
    kind: PlaceKind

    def files(self) -> Iterator[Path]:
        """Everything that is named like a cache file, by name. Raises OSError."""
        for path in sorted(self.folder.iterdir()):
            if (is_cache_name(path.name) or path.name == SYSTEM_PROMPT_NAME) and path.is_file():
                yield path


def places(named: Path | None) -> list[Place]:
    """`named` alone, or every folder of ours: the server's of each model, then those of `ds4 chat`.

    Raises UsageError when `named` is no folder.
    """
    if named is not None:
        named = named_folder(named)
        if not named.is_dir():
            raise UsageError(f"--dir {named}: there is no such folder")
        return [Place(named, "named folder")]
    roots: tuple[tuple[Path, PlaceKind], ...] = (
        (store_folder("").absolute(), "prompt states"),
        (sessions_folder("").absolute(), "chat sessions"),
    )
    return [Place(folder, kind) for root, kind in roots for folder in _folders(root)]


def find_file(word: str, among: Iterable[Place]) -> Path:
    """The file that `word` means: a path, or the first hex digits of one name.

    Raises UsageError when several files fit, CacheFileError when none does.
    """
    path = Path(word)
    if path.is_file():
        return path
    found: list[Path] = []
    searched = list(among)
    if _PREFIX.fullmatch(word):
        prefix = word.lower().removesuffix(".kv")
        found = [file for place in searched for file in place.files() if file.name.lower().startswith(prefix)]
    if len(found) > 1:
        shown = ", ".join(str(file) for file in found[:3]) + (", …" if len(found) > 3 else "")
        raise UsageError(f"{word} fits {len(found)} files: {shown}; give more digits or a path")
    if not found and word and path.is_dir():
        raise CacheFileError(f"{word} is a folder: give a file in it, or --dir {word}")
    if not found:
        where = ", ".join(str(place.folder) for place in searched) or "any folder of ours"
        raise CacheFileError(f"no cache file {word} in {where}: `ds4 kv ls` shows what there is")
    return found[0]


def find_files(words: Iterable[str], among: Sequence[Place]) -> tuple[list[Path], list[str]]:
    """The files that `words` mean, and for each word that means none, why. Raises UsageError as above."""
    found: list[Path] = []
    unknown: list[str] = []
    for word in words:
        try:
            found.append(find_file(word, among))
        except CacheFileError as error:
            unknown.append(str(error))
    return found, unknown


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
