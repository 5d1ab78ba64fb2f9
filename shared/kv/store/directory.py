"""The directory of a store: made private, held by one writer, marked with the model that it belongs to.

Owns `.lock` and `.model`. Must not know: cache files, policies. Spec: kv §11, §13.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Final

from shared.errors import StoreUnavailable
from shared.kv.files.replacement import Replacement
from shared.kv.store.model_identity import ModelIdentity

LOCK: Final = ".lock"
MARKER: Final = ".model"
_MOST_MARKER_BYTES: Final = 64 * 1024


class StoreDirectory:
    """A directory that exists and belongs to `model`. Raises StoreUnavailable.

    One process at a time may write to it. The lock goes with the process, however that ends.
    """

    def __init__(self, path: Path, model: ModelIdentity) -> None:
        self.path = path
        self._model = model
        self._held = False
        self._lock = -1
        self._open()

    @property
    def held(self) -> bool:
        """Whether this process may write here."""
        return self._held

    def take(self) -> bool:
        """Try to become the writer. True: just now; False: another process is, or this one was already.

        A directory that was removed meanwhile is made anew. Raises StoreUnavailable.
        """
        if not self._is_in_place():
            self.close()
            self._open()
        if self._held:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Held by another, or a file system without locks: then writing would be a gamble.
            return False
        if not self._is_marked():
            self._mark()
        self._held = True
        # For whoever finds the directory held and wants to know by whom.
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        return True

    def close(self) -> None:
        """Let another process write."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock, self._held = -1, False

    def _open(self) -> None:
        try:
            _make_private(self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._lock = os.open(self.path / LOCK, flags, 0o600)
        except OSError as error:
            raise StoreUnavailable(
                f"saved states cannot be kept in {self.path}: {error.strerror or error}; "
                "choose another directory"
            ) from None
        try:
            self._is_marked()
        except StoreUnavailable:
            self.close()
            raise

    def _is_in_place(self) -> bool:
        """Whether the lock is that of the directory as it is now."""
        try:
            return os.path.samestat(os.stat(self.path / LOCK), os.fstat(self._lock))
        except OSError:
            return False

    def _is_marked(self) -> bool:
        """Whether the directory is marked, as ours. One without a mark may hold files of the C engine."""
        marker = self.path / MARKER
        try:
            with marker.open("rb") as file:
                content = json.loads(file.read(_MOST_MARKER_BYTES))
            fingerprint, name = content["fingerprint"], content["name"]
        except FileNotFoundError:
            return False
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise StoreUnavailable(
                f"{marker} should name the model of the saved states beside it and cannot be read: choose "
                "another directory, or remove that file if you know that they are of this model"
            ) from None
        if fingerprint != self._model.fingerprint:
            raise StoreUnavailable(
                f"{self.path} holds saved states of another model file ({str(name)[:80]!r}, this one is "
                f"{self._model.name!r}): choose another directory for this one, or empty that one"
            )
        return True

    def _mark(self) -> None:
        content = json.dumps({"fingerprint": self._model.fingerprint, "name": self._model.name})
        try:
            with Replacement(self.path / MARKER) as new:
                new.file.write(content.encode() + b"\n")
                new.commit()
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be written to: {error.strerror or error}") from None


def _make_private(path: Path) -> None:
    """Make the directory and what is missing above it, for this user alone. What exists stays as it is."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
