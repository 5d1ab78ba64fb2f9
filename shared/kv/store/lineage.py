"""Which files go on from which: their texts begin with the other's text. Spec: kv §6.

Owns the hashes of the texts' beginnings. Must not know: scores, budgets.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from shared.errors import CacheFileError
from shared.kv.files.cache_file import CacheFile
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.header import Reason
from shared.kv.store.prefix_hash import prefix_names


class Lineage:
    """Remembers for each file the names of its text's beginnings, as far as they were asked for.

    A name stands for its text, so what was read of a file holds for as long as the name does. Any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beginnings: dict[str, dict[int, str]] = {}

    def branches(self, files: Collection[CacheFile]) -> dict[str, int]:
        """In how many different ways other files go on from each cold file, by name: 0, 1, or 2 for several.

        Reads a text again only for cold lengths that were not asked for before.
        """
        cold = {file.name: file for file in files if file.header.reason is Reason.COLD}
        lengths = sorted({file.text_bytes for file in cold.values()})
        descendants: dict[str, list[CacheFile]] = {name: [] for name in cold}
        for file in files:
            for length, name in self._names(file, [length for length in lengths if length < file.text_bytes]):
                if name in cold and cold[name].text_bytes == length:
                    descendants[name].append(file)
        self._keep(files)
        return {name: self._count(family) for name, family in descendants.items()}

    def _count(self, family: Sequence[CacheFile]) -> int:
        """One way if all texts are beginnings of the longest."""
        if len(family) < 2:
            return len(family)
        longest = max(family, key=lambda file: file.text_bytes)
        lengths = sorted({file.text_bytes for file in family})
        chain = dict(self._names(longest, lengths))
        return 1 if all(chain.get(file.text_bytes) == file.name for file in family) else 2

    def _names(self, file: CacheFile, lengths: Sequence[int]) -> list[tuple[int, str]]:
        """(length, name) for the ascending `lengths` of the file's text; none if it cannot be read."""
        with self._lock:
            known = dict(self._beginnings.get(file.name, {}))
        missing = [length for length in lengths if length not in known]
        if missing:
            try:
                with open_cache_file(file.path) as reader:
                    known.update(prefix_names(reader.text(), missing))
            except (OSError, CacheFileError):
                return []
            with self._lock:
                self._beginnings[file.name] = known
        return [(length, known[length]) for length in lengths if length in known]

    def _keep(self, files: Collection[CacheFile]) -> None:
        """Forget the files that are gone."""
        names = {file.name for file in files}
        with self._lock:
            self._beginnings = {name: known for name, known in self._beginnings.items() if name in names}
