"""The store: finds, loads and saves states in a directory of cache files. Spec: kv §3 to §6, §13.

Owns the decisions and their log lines. Must not know: what a payload holds, prompts, slots, requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from shared.kv.files.cache_file import CacheFile
from shared.kv.files.header import Reason
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.outcomes import Key, Loaded, Refusal, Saved, ToolMap
from shared.kv.store.policy import StoreSettings
from shared.session import Session

__all__ = ["Key", "KvStore", "Loaded", "Refusal", "Saved", "ToolMap"]


class KvStore:
    """Saved states of one model in one directory.

    `find`, `load`, `offer`, `save` and `unusable` belong to the inference thread; `tool_turns` may be called from
    any thread. Files are written by a thread of the store's own.
    """

    def __init__(
        self,
        directory: Path,
        model: ModelIdentity,
        settings: StoreSettings,
        *,
        say: Callable[[str], None],
        decode: Callable[[Sequence[int]], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`decode` renders tokens, `say` takes log lines. Raises StoreUnavailable."""
        self.directory = directory
        self.settings = settings
        raise NotImplementedError

    @property
    def read_only(self) -> bool:
        """Whether another process writes to the directory: this one may load, and saves nothing."""
        raise NotImplementedError

    def find(self, rendered: bytes, context: int) -> list[CacheFile]:
        """Files whose key text `rendered` begins with and that a session of `context` can load: longest first."""
        raise NotImplementedError

    def load(
        self,
        file: CacheFile,
        rendered: bytes,
        session: Session,
        accepts: Callable[[list[int], CacheFile], bool],
    ) -> Loaded | None:
        """Put `session` into the state of `file`. None, with the session invalid or untouched: it cannot be used."""
        raise NotImplementedError

    def unusable(self, file: CacheFile) -> None:
        """The state loaded from `file` broke the engine: it is never tried again."""
        raise NotImplementedError

    def offer(
        self,
        key: Key,
        reason: Reason,
        *,
        tokens: int,
        context: int,
        payload_bytes: int,
        tool_map: Mapping[str, bytes] | None = None,
        protect: Collection[str] = (),
    ) -> Refusal | None:
        """Whether a state would be stored: None, or what speaks against it. Needs no session."""
        raise NotImplementedError

    def save(
        self,
        session: Session,
        key: Key,
        reason: Reason,
        *,
        tool_map: Mapping[str, bytes] | None = None,
        protect: Collection[str] = (),
        trimmed: int = 0,
    ) -> Saved:
        """Store the state of `session` under `key`; copies it and returns before it is on disk.

        `protect` names files (of `find`) that must not make room for it; `trimmed` is how many tokens of the prompt
        are behind it (for the log). Raises EngineFault when the session breaks.
        """
        raise NotImplementedError

    def tool_turns(self, ids: Collection[str]) -> list[ToolMap]:
        """What files remember of the tool calls `ids`; at most one entry for each id."""
        raise NotImplementedError

    def flush(self) -> None:
        """Wait until everything saved so far is on disk."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush, stop the writer, let the directory go. Nothing else may be called afterwards."""
        raise NotImplementedError
