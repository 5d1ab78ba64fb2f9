"""The store: finds, loads and saves states in a directory of cache files. Spec: kv §3 to §6, §13.

Owns lookup and loading; saving is the saver's. Must not know: what a payload holds, prompts, slots, requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from shared.errors import CacheFileError, DamagedFile, EngineFault, PayloadError, StoreUnavailable
from shared.kv.files.cache_file import CacheFile
from shared.kv.files.header import QUANT_BITS, Reason
from shared.kv.files.trailers import encode_tool_map
from shared.kv.store.directory import StoreDirectory
from shared.kv.store.lineage import Lineage
from shared.kv.store.loader import Decode, LoadedState, load_state
from shared.kv.store.log import reason_of
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.outcomes import Key, Loaded, Refusal, Saved, ToolMap
from shared.kv.store.policy import StoreSettings
from shared.kv.store.room import Room
from shared.kv.store.saver import Saver, free_bytes
from shared.kv.store.shelf import Shelf
from shared.kv.store.tool_index import ToolIndex
from shared.session import Session

__all__ = ["Key", "KvStore", "Loaded", "Refusal", "Saved", "ToolMap"]


class KvStore:
    """Saved states of one model in one directory.

    `find`, `load`, `offer`, `save` and `unusable` belong to the inference thread; `tool_turns` may be called
    from any thread. Files are written, and log lines about them said, by a thread of the store's own.
    """

    def __init__(
        self,
        directory: Path,
        model: ModelIdentity,
        settings: StoreSettings,
        *,
        say: Callable[[str], None],
        decode: Decode,
        clock: Callable[[], float] = time.time,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """`decode` renders tokens, `say` takes log lines, `free` tells the free bytes of a disk.

        Raises StoreUnavailable.
        """
        if model.quant_bits not in QUANT_BITS:
            raise StoreUnavailable(
                f"no cache file can hold states of a model of {model.quant_bits} quant bits"
            )
        self.directory = directory
        self.settings = settings
        self._model = model
        self._decode = decode
        self._say = say
        self._tools = ToolIndex()
        self._place = StoreDirectory(directory, model)
        room = Room(settings, Lineage())
        try:
            self._shelf = Shelf(self._place, room, settings.budget_bytes, say=say, clock=clock)
        except BaseException:
            self._place.close()
            raise
        self._saver = Saver(self._shelf, room, model, settings, say=say, clock=clock, free=free)

    @property
    def read_only(self) -> bool:
        """Whether another process writes to the directory: this one may load, and saves nothing."""
        return not self._place.held

    @property
    def bytes_written(self) -> int:
        """Bytes of the files that this store has written since it was opened."""
        return self._saver.bytes_written

    def contents(self) -> tuple[int, int]:
        """How many files there are to load from, and their bytes."""
        self._shelf.refresh()
        files = self._shelf.files().values()
        return len(files), sum(file.size for file in files)

    def find(self, rendered: bytes, context: int, *, live_bytes: int = 0) -> list[CacheFile]:
        """The files that `rendered` begins with and that a session of `context` tokens may load, the longest
        text first. None of them is evicted before the next `find`, `offer` or `save`.

        A longer one that is still being written is waited for, unless memory holds as much: the state of the
        first `live_bytes` of `rendered`.
        """
        self._shelf.refresh()
        # Asked first: a write that ends in between is then either among the files or waited for.
        pending = self._saver.writer.pending()
        found = self._usable_prefixes(rendered, context)
        longest = max(live_bytes, found[0].text_bytes if found else 0)
        coming = [job for job in pending if len(job.text) > longest and rendered.startswith(job.text)]
        for job in coming:
            self._saver.writer.wait_for(job)
        if coming:
            found = self._usable_prefixes(rendered, context)
        self._shelf.pin([file.name for file in found])
        return found

    def load(
        self,
        file: CacheFile,
        rendered: bytes,
        session: Session,
        accepts: Callable[[list[int], CacheFile], bool],
    ) -> Loaded | None:
        """Put `session` into the state of `file`, if `accepts` its tokens as a beginning of the prompt.

        None: it cannot be used, and the session is untouched or invalid; try the next one. A damaged file
        goes to `bad/`, one that this session cannot load is not found again, one that is not accepted stays.
        """
        started = time.monotonic()
        with self._shelf.using(file.name):
            try:
                state = load_state(file.path, rendered, self._model.model_id, session, self._decode)
            except (CacheFileError, PayloadError, EngineFault, OSError) as error:
                fate = self._fate(file, error)
                self._say_failed(file, started, reason_of(error, file.path.name) + fate)
                return None
            if not accepts(state.tokens, state.file):
                session.invalidate()
                self._say_failed(file, started, "its control tokens are not those of the prompt")
                return None
            current = self._shelf.touch(state.file)
        milliseconds = _milliseconds_since(started)
        self._say_hit(state, milliseconds)
        return Loaded(state.tokens, current, state.text, state.tool_map, milliseconds)

    def unusable(self, file: CacheFile) -> None:
        """The state loaded from `file` broke the engine: it is never tried again. Spec: kv §4.3."""
        fate = self._shelf.discard(file)
        self._say(f"kv discarded file={file.path.name}: prefill on top of it failed; {fate}")

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
        """Whether a state would be stored: None, or what speaks against it. Needs no session, says nothing.

        If the file is there already, it gets the calls of `tool_map` that it lacks.
        """
        calls = tool_map or {}
        incoming = self._saver.describe(key, reason, tokens, context, payload_bytes, encode_tool_map(calls))
        return self._saver.offer(incoming, calls, protect)

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
        """Store the state of `session` under `key`: copies it, and returns before it is on disk.

        `protect` names the files that must not make room for it; `trimmed` is how many tokens of the prompt
        come after it (for the log). Waits while too much is waiting to be written, except for a continued
        state. Raises what the session raises.
        """
        return self._saver.save(session, key, reason, tool_map or {}, protect, trimmed)

    def say_skipped(self, tokens: int, reason: Reason, why: str) -> None:
        """A line about a state of `tokens` that the store was not asked to save."""
        self._say(f"kv skipped tokens={tokens} reason={reason.label}: {why}")

    def tool_turns(self, ids: Collection[str]) -> list[ToolMap]:
        """What the files remember of the tool calls `ids`, each of them once. Any thread. Spec: kv §8.4."""
        if not ids:
            return []
        self._shelf.refresh()
        files = [
            file for file in self._shelf.files().values() if file.header.model_id == self._model.model_id
        ]
        return self._tools.turns(files, ids)

    def flush(self) -> None:
        """Wait until everything saved so far is on disk, or was given up with a log line."""
        self._saver.writer.flush()

    def close(self) -> None:
        """Flush, end the writer, let the directory go. Nothing else may be called afterwards."""
        self._saver.writer.close()
        self._place.close()

    def _usable_prefixes(self, rendered: bytes, context: int) -> list[CacheFile]:
        return [file for file in self._shelf.prefixes_of(rendered) if self._is_usable(file, context)]

    def _is_usable(self, file: CacheFile, context: int) -> bool:
        header = file.header
        return (
            header.model_id == self._model.model_id
            and header.payload_bytes > 0
            and header.tokens >= self.settings.min_tokens
            and header.tokens < context
            and header.context <= context
            and (header.quant_bits == self._model.quant_bits or not self.settings.reject_other_quant)
        )

    def _fate(self, file: CacheFile, error: Exception) -> str:
        """Deal with a file that did not load; says how, for the log. A file system's refusal may pass."""
        if isinstance(error, DamagedFile):
            return "; " + self._shelf.discard(file)
        if not isinstance(error, OSError):
            self._shelf.refuse(file)
        return ""

    def _say_failed(self, file: CacheFile, started: float, why: str) -> None:
        self._say(f"kv load failed file={file.path.name} load={_milliseconds_since(started)}ms: {why}")

    def _say_hit(self, state: LoadedState, milliseconds: int) -> None:
        header = state.file.header
        self._say(
            f"kv hit text tokens={header.tokens} text={len(state.text)} quant={header.quant_bits} "
            f"key={header.key_label} load={milliseconds}ms file={state.file.path.name}"
        )


def _milliseconds_since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
