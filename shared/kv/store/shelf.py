"""The directory and its index under one lock: what both ends of a store, loading and saving, have in hand.

Owns which files are in use, refused, discarded and evicted. Must not know: sessions, payloads, prompts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from shared.errors import CacheFileError
from shared.kv.files.cache_file import CacheFile
from shared.kv.files.cache_writer import touch
from shared.kv.files.checksum import remove_sidecar
from shared.kv.store.catalog import Catalog
from shared.kv.store.directory import StoreDirectory
from shared.kv.store.leftovers import remove_leftovers
from shared.kv.store.log import mebibytes
from shared.kv.store.quarantine import put_away
from shared.kv.store.room import Room


class Shelf:
    """The files of one directory. Any thread; the lock is never held while a file is written or loaded.

    Raises StoreUnavailable.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        room: Room,
        budget_bytes: int | None,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.directory = directory
        self._room = room
        self._budget_bytes = budget_bytes
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._catalog = Catalog(directory.path)
        self._refused: dict[str, CacheFile] = {}
        self._loading: list[str] = []
        self._pinned: frozenset[str] = frozenset()
        self.take()

    def take(self) -> bool:
        """Whether this process may write here, after one more try. Raises StoreUnavailable.

        Whoever becomes the writer tidies up first: dead writers leave temporaries, and the directory may hold
        more than its budget.
        """
        if self.directory.take():
            with self._lock:
                self._catalog = Catalog(self.directory.path)
            # Without the right to list the directory there is nothing to tidy up, nor to evict.
            with suppress(OSError):
                remove_leftovers(self.directory.path, self._clock())
            self.refresh()
            self.evict(self._room.plan(self.files().values(), None, self._clock()).names)
        return self.directory.held

    def refresh(self) -> None:
        """Take in what others did to the directory. What the other methods tell is as of the last call."""
        with self._lock:
            self._refresh()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Within this, files of the directory come and go by this process's doing; `update` tells of those
        that came. It looks at none of the others for that."""
        with self._lock:
            self._refresh()
            catalog = self._catalog
            catalog.begin_change()
        try:
            yield
        finally:
            with self._lock:
                catalog.end_change()

    def files(self) -> dict[str, CacheFile]:
        """All usable files, by name."""
        with self._lock:
            return self._catalog.by_name()

    def prefixes_of(self, rendered: bytes) -> list[CacheFile]:
        """The files whose text is a beginning of `rendered`, the longest first; none that was refused."""
        with self._lock:
            found = self._catalog.prefixes_of(rendered)
            return [file for file in found if not self._is_refused(file)]

    def get(self, name: str) -> CacheFile | None:
        """The file of that name, unless it was refused."""
        with self._lock:
            file = self._catalog.get(name)
            return None if file is None or self._is_refused(file) else file

    def is_foreign(self, name: str) -> bool:
        """Whether something of that name is there that is none of the store's business."""
        with self._lock:
            return self._catalog.is_foreign(name)

    def update(self, file: CacheFile) -> None:
        """This process has written `file`, or to it."""
        with self._lock:
            self._refused.pop(file.name, None)
            self._catalog.update(file)

    def touch(self, file: CacheFile) -> CacheFile:
        """Count a hit, if this process may write; a hit that cannot be counted is no harm."""
        if not self.directory.held:
            return file
        try:
            touched = touch(file, self._clock())
        except (OSError, CacheFileError):
            return file
        self.update(touched)
        return touched

    def pin(self, names: Collection[str]) -> None:
        """Keep these files, and no longer those of the last call, until it is known which one is loaded."""
        with self._lock:
            self._pinned = frozenset(names)

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Within this, the file makes no room for others."""
        with self._lock:
            self._loading.append(name)
        try:
            yield
        finally:
            with self._lock:
                self._loading.remove(name)

    def kept(self) -> frozenset[str]:
        """The names that must not be evicted now."""
        with self._lock:
            return self._pinned.union(self._loading)

    def refuse(self, file: CacheFile) -> None:
        """Leave a file where it is but out of sight, until it changes."""
        with self._lock:
            self._refused[file.name] = file

    def discard(self, file: CacheFile) -> str:
        """Move a file that can never be used out of the way; returns where it went, for the log."""
        with self._lock:
            if self.directory.held and put_away(file.path, self._budget_bytes):
                self._catalog.forget(file.name)
                return "moved to bad/"
        self.refuse(file)
        return "ignored from now on"

    def evict(self, names: Collection[str]) -> None:
        """Remove files for want of room, one log line each. The first that cannot be removed ends it."""
        if not names:
            return
        with self.changing():
            for name in names:
                try:
                    file = self._remove(name)
                except OSError as error:
                    self._say(f"kv evict failed file={name}: {error.strerror or error}")
                    return
                if file is None:
                    continue
                self._say(
                    f"kv evicted reason=disk-cache-full tokens={file.header.tokens} hits={file.header.hits} "
                    f"size={mebibytes(file.size)} file={file.path.name}"
                )

    def _remove(self, name: str) -> CacheFile | None:
        with self._lock:
            file = self._catalog.get(name)
            if file is None or name in self._pinned or name in self._loading:
                return None
            file.path.unlink(missing_ok=True)
            remove_sidecar(file.path)
            self._catalog.forget(name)
            return file

    def _is_refused(self, file: CacheFile) -> bool:
        return self._refused.get(file.name) == file

    def _refresh(self) -> None:
        try:
            damaged = self._catalog.refresh()
        except OSError:
            return  # the directory is gone, or out of reach for now: what is known has to do
        for found in damaged:
            if self.directory.held and put_away(found.path, self._budget_bytes):
                self._say(f"kv discarded {found.why}; moved to bad/")
            else:
                self._say(f"kv ignored {found.why}")
