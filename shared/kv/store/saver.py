"""The saving end of a store: what is worth writing, and writing it. Spec: kv §3, §5, §6, §8.3.

Owns the checks before a save and the order of its steps. Must not know: when to save, prompts, slots.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from shared.errors import CacheFileError, StoreUnavailable
from shared.kv.files.cache_file import MOST_TEXT_BYTES, TEXT_AT, CacheFile, cache_name
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.cache_writer import replace_trailer, write_cache_file
from shared.kv.files.header import Extension, Header, Reason
from shared.kv.files.trailers import encode_tool_map
from shared.kv.store.log import mebibytes, reason_of
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.outcomes import Key, Refusal, Saved
from shared.kv.store.payload_buffer import PayloadBuffer
from shared.kv.store.policy import StoreSettings, fits_budget
from shared.kv.store.room import Incoming, Room, is_saved_session
from shared.kv.store.shelf import Shelf
from shared.kv.store.writer import Job, Writer
from shared.session import Session

# A cache must not be what fills the disk.
DISK_RESERVE_BYTES: Final = 256 << 20


def free_bytes(directory: Path) -> int:
    """Bytes that this user may still write to the file system of `directory`."""
    return shutil.disk_usage(directory).free


class Saver:
    """Saves states of `model` to a shelf, on a thread of its own. One thread at a time may use it."""

    def __init__(
        self,
        shelf: Shelf,
        room: Room,
        model: ModelIdentity,
        settings: StoreSettings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float],
        free: Callable[[Path], int],
    ) -> None:
        self._shelf = shelf
        self._room = room
        self._model = model
        self._settings = settings
        self._say = say
        self._clock = clock
        self._free = free
        self._lock = threading.Lock()
        self._coming: dict[str, CacheFile] = {}  # files whose write is not done
        self._told: dict[Path, str] = {}  # what stands in the way, and why: it is said once
        self.writer = Writer(self._failed)
        self.bytes_written = 0  # of all files, since the start

    def offer(
        self, incoming: Incoming, tool_map: Mapping[str, bytes], protect: Collection[str]
    ) -> Refusal | None:
        """What speaks against writing `incoming`. A file that is there gets the `tool_map` it lacks."""
        self._shelf.pin(protect)
        directory = self._shelf.directory.path
        try:
            if not self._shelf.take():
                return Refusal("another process writes to this directory", obstacle=directory)
        except StoreUnavailable as error:
            return Refusal(str(error), obstacle=directory)
        self._told.pop(directory, None)
        if incoming.file.header.tokens < self._settings.min_tokens:
            return Refusal(f"fewer than {self._settings.min_tokens} tokens")
        if not 0 < len(incoming.text) <= MOST_TEXT_BYTES:
            return Refusal(f"a key of {len(incoming.text)} bytes")
        self._shelf.refresh()
        return self._existing(incoming, tool_map) or self._no_room(incoming)

    def describe(
        self, key: Key, reason: Reason, tokens: int, context: int, payload_bytes: int, trailer: bytes
    ) -> Incoming:
        """The file that a state would make."""
        now = int(self._clock())
        extensions = key.extensions | Extension.TOOL_MAP if trailer else key.extensions & ~Extension.TOOL_MAP
        header = Header(
            quant_bits=self._model.quant_bits,
            reason=reason,
            extensions=extensions,
            model_id=self._model.model_id,
            tokens=tokens,
            hits=0,
            context=context,
            created_at=now,
            last_used=now,
            payload_bytes=payload_bytes,
        )
        size = TEXT_AT + len(key.text) + payload_bytes + len(trailer)
        path = self._shelf.directory.path / cache_name(key.text)
        return Incoming(key.text, CacheFile(path, header, len(key.text), size))

    def save(
        self,
        session: Session,
        key: Key,
        reason: Reason,
        tool_map: Mapping[str, bytes],
        protect: Collection[str],
        trimmed: int,
    ) -> Saved:
        """See `KvStore.save`."""
        payload_bytes, trailer = session.payload_bytes(), encode_tool_map(tool_map)
        incoming = self.describe(key, reason, session.position, session.context, payload_bytes, trailer)
        refusal = self.offer(incoming, tool_map, protect)
        if refusal is None and not self.writer.reserve(payload_bytes, wait=reason is not Reason.CONTINUED):
            refusal = Refusal("too much is waiting to be written")
        payload = None if refusal is not None else self._copied(session, payload_bytes)
        if payload is None:
            refusal = refusal or Refusal("there is no memory for a copy of it")
            self._say_refused(incoming, refusal)
            return Saved(refusal.already_stored, refusal.why, 0)
        self._told.pop(incoming.file.path, None)
        with self._lock:
            self._coming[incoming.file.name] = incoming.file
        self.writer.put(
            Job(
                name=incoming.file.name,
                text=key.text,
                size=payload_bytes,
                droppable=reason is Reason.CONTINUED,
                run=lambda: self._write(incoming, payload, trailer, frozenset(protect), trimmed),
                dropped=lambda: self._drop(incoming),
            )
        )
        return Saved(True, "", incoming.file.size)

    def _copied(self, session: Session, payload_bytes: int) -> PayloadBuffer | None:
        """The state, of a size that the writer has room for; None without memory for it. Raises what the
        session raises."""
        try:
            payload = PayloadBuffer(payload_bytes)
            session.save(payload)
        except BaseException as error:
            self.writer.release(payload_bytes)
            if isinstance(error, MemoryError):
                return None
            raise
        return payload

    def _existing(self, incoming: Incoming, tool_map: Mapping[str, bytes]) -> Refusal | None:
        name, header = incoming.file.name, incoming.file.header
        with self._lock:
            if name in self._coming:
                return Refusal("already being written", already_stored=True)
        file = self._shelf.get(name)
        path = incoming.file.path
        if file is None:
            foreign = self._shelf.is_foreign(name)
            return Refusal("a file of another version has the same name", obstacle=path) if foreign else None
        if is_saved_session(file.header):
            return Refusal("a saved session has the same text", obstacle=path)
        serves = (
            file.header.model_id == header.model_id
            and (file.header.quant_bits == header.quant_bits or not self._settings.reject_other_quant)
            and file.header.context <= header.context
            and file.header.payload_bytes > 0
        )
        if not serves or not self._has_text(file, incoming.text):
            return None  # what is written takes its place
        if tool_map:
            self._add_calls(file, tool_map)
        return Refusal("already stored", already_stored=True)

    def _has_text(self, file: CacheFile, text: bytes) -> bool:
        try:
            with open_cache_file(file.path) as reader:
                return reader.text() == text
        except (OSError, CacheFileError):
            return False

    def _add_calls(self, file: CacheFile, tool_map: Mapping[str, bytes]) -> None:
        """Let a file remember these tool calls besides its own."""
        try:
            with self._shelf.using(file.name):
                with open_cache_file(file.path) as reader:
                    known = reader.tool_map()
                if tool_map.items() <= known.items():
                    return
                extensions = file.header.extensions | Extension.TOOL_MAP
                trailer = encode_tool_map({**known, **tool_map})
                self._shelf.update(replace_trailer(file, trailer, extensions, self._clock()))
        except (OSError, CacheFileError, ValueError) as error:
            why = reason_of(error, file.path.name)
            self._say(f"kv store failed file={file.path.name}: its tool calls cannot be updated: {why}")

    def _no_room(self, incoming: Incoming) -> Refusal | None:
        size = incoming.file.size
        if not fits_budget(size, self._settings):
            return Refusal(f"{mebibytes(size)} do not fit the budget")
        with self._lock:
            coming = dict(self._coming)
        files = self._shelf.files() | coming
        victims = self._room.plan(files.values(), incoming, self._clock(), self._shelf.kept())
        if victims.would_evict_incoming:
            return Refusal("it would be the first to be evicted")
        gain = sum(files[name].size for name in victims.names if name not in coming)
        ahead = sum(file.size for file in coming.values())
        try:
            free = self._free(self._shelf.directory.path)
        except OSError as error:
            return Refusal(error.strerror or str(error))
        if free + gain < size + ahead + DISK_RESERVE_BYTES:
            return Refusal(f"the disk is almost full: {mebibytes(free)} are free")
        return None

    def _write(
        self,
        incoming: Incoming,
        payload: PayloadBuffer,
        trailer: bytes,
        protect: Collection[str],
        trimmed: int,
    ) -> None:
        """On the writer's thread. What goes is chosen before the write, but goes after it: a crash must not
        cost the old files and the new one."""
        file, header, started = incoming.file, incoming.file.header, time.monotonic()
        try:
            kept = self._shelf.kept().union(protect)
            victims = self._room.plan(self._shelf.files().values(), incoming, self._clock(), kept)
            if victims.would_evict_incoming:
                self._say_skipped(incoming, "it would be the first to be evicted")
                return
            if self._free(file.path.parent) < file.size + DISK_RESERVE_BYTES:
                self._shelf.evict(victims.names)
            settings = self._settings
            with self._shelf.changing():
                written = write_cache_file(
                    file.path,
                    header,
                    incoming.text,
                    [payload.content],
                    trailer,
                    durable=settings.durable,
                    checksum=settings.checksum,
                )
                self._shelf.update(written)
                self.bytes_written += written.size
                self._shelf.evict(victims.names)
        finally:
            self._forget(incoming)
        milliseconds = int((time.monotonic() - started) * 1000)
        self._say(
            f"kv stored tokens={header.tokens} trimmed={trimmed} reason={header.reason.label} "
            f"key={header.key_label} size={mebibytes(file.size)} {milliseconds}ms file={file.path.name}"
        )

    def _drop(self, incoming: Incoming) -> None:
        self._forget(incoming)
        self._say_skipped(incoming, "a longer state of the same conversation came before it was written")

    def _failed(self, job: Job, error: Exception) -> None:
        self._say(f"kv store failed file={job.name}: {reason_of(error, job.name)}")

    def _forget(self, incoming: Incoming) -> None:
        with self._lock:
            self._coming.pop(incoming.file.name, None)

    def _say_refused(self, incoming: Incoming, refusal: Refusal) -> None:
        if refusal.obstacle is not None:
            if self._told.get(refusal.obstacle) == refusal.why:
                return
            self._told[refusal.obstacle] = refusal.why
        self._say_skipped(incoming, refusal.why)

    def _say_skipped(self, incoming: Incoming, why: str) -> None:
        header = incoming.file.header
        self._say(
            f"kv skipped tokens={header.tokens} reason={header.reason.label} key={header.key_label} "
            f"size={mebibytes(incoming.file.size)} file={incoming.file.path.name}: {why}"
        )
