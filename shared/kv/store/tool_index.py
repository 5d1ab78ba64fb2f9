"""Which file remembers which tool calls, so that no request has to read them all. Spec: kv §8.4, §13.

Owns the ids in memory; the blocks stay on disk. Must not know: what a block says.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from shared.errors import CacheFileError
from shared.kv.files.cache_file import CacheFile
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.header import Extension
from shared.kv.store.outcomes import ToolMap


class ToolIndex:
    """The tool ids of each file, read once and again when the file changes. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, tuple[CacheFile, frozenset[str]]] = {}

    def turns(self, files: Iterable[CacheFile], ids: Collection[str]) -> list[ToolMap]:
        """For each of `ids` the entry of one file, the latest used that has it."""
        mapped = [file for file in files if file.header.extensions & Extension.TOOL_MAP]
        self._keep(mapped)
        missing, found = set(ids), []
        for file in sorted(mapped, key=lambda file: file.header.used_at, reverse=True):
            if not missing:
                break
            if self._ids_of(file).isdisjoint(missing):
                continue
            turn = _read_calls(file, missing)
            if turn is not None and turn.calls:
                found.append(turn)
                missing -= turn.calls.keys()
        return found

    def _ids_of(self, file: CacheFile) -> frozenset[str]:
        with self._lock:
            known = self._ids.get(file.name)
        # Equal files have equal headers, so a hit or another map shows.
        if known is not None and known[0] == file:
            return known[1]
        try:
            with open_cache_file(file.path) as reader:
                ids = frozenset(reader.tool_map())
        except (OSError, CacheFileError):
            return frozenset()
        with self._lock:
            self._ids[file.name] = file, ids
        return ids

    def _keep(self, files: Collection[CacheFile]) -> None:
        names = {file.name for file in files}
        with self._lock:
            for gone in self._ids.keys() - names:
                del self._ids[gone]


def _read_calls(file: CacheFile, wanted: Collection[str]) -> ToolMap | None:
    try:
        with open_cache_file(file.path) as reader:
            calls = {tool_id: block for tool_id, block in reader.tool_map().items() if tool_id in wanted}
            return ToolMap(reader.text(), calls)
    except (OSError, CacheFileError):
        return None
