"""Names of cache files for the beginnings of a text, without hashing the text once for each of them.

Spec: kv §13. Must not know: directories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from shared.kv.files.cache_file import SUFFIX


def prefix_names(text: bytes, lengths: Iterable[int]) -> Iterator[tuple[int, str]]:
    """(length, name of the file whose key is that much of `text`), for those of the ascending `lengths` in
    bytes that `text` has. The text is hashed once, and the hash forked at each length."""
    state, done, view = hashlib.sha1(usedforsecurity=False), 0, memoryview(text)
    for length in lengths:
        if length > len(text):
            return
        state.update(view[done:length])
        done = length
        yield length, state.copy().hexdigest() + SUFFIX
