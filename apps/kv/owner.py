"""Who works in a folder of saved states: nothing is removed behind a running server's back.

Spec: kv §11, §13.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from shared.errors import Ds4Error
from shared.kv.store.directory import LOCK
from shared.kv.store.quarantine import FOLDER as QUARANTINE


class FolderInUse(Ds4Error):
    """A live process holds the folder."""


def folder_of(path: Path) -> Path:
    """The folder whose lock guards the file `path`; what was set aside as damaged belongs one above."""
    folder = path.absolute().parent
    return folder.parent if folder.name == QUARANTINE else folder


@contextmanager
def held(folders: Iterable[Path], *, force: bool) -> Iterator[None]:
    """Hold the locks of all `folders`, so that no server starts in them meanwhile.

    Raises FolderInUse when a process has one, unless `force`. A folder that no store of ours has opened has
    no lock, and gets none.
    """
    with ExitStack() as locks:
        for folder in sorted(set(folders)):
            _hold(folder, locks, force=force)
        yield


def _hold(folder: Path, locks: ExitStack, *, force: bool) -> None:
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    locks.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if force:
            return
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        who = f"process {owner}" if owner.isdigit() else "another process"
        raise FolderInUse(
            f"{folder} is in use by {who}: stop it first, or remove from under it with --force"
        ) from None
