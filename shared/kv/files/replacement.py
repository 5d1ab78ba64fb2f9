"""A file that takes its place, or another's, all at once or not at all. Spec: kv §3, §11.

Owns the temporary's name, the flushing and the renaming. Must not know what is written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

# What file systems say that know no second name for a file.
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def temporary_path(path: Path) -> Path:
    """Where this process builds the file that is to become `path`."""
    return path.with_name(f"{path.name}.tmp.{os.getpid()}")


class Replacement:
    """`with Replacement(path) as new: new.file.write(...); new.commit()`. Without a commit nothing happened.

    Raises OSError, as the file system has it; the temporary is then gone.
    """

    file: BinaryIO

    def __init__(self, path: Path, *, durable: bool = True, private: bool = True) -> None:
        """Others may read the file as they may any new one, unless it is `private`."""
        self._path = path
        self._temporary = temporary_path(path)
        self._durable = durable
        self._mode = 0o600 if private else 0o666
        self._committed = False
        self._handed_over = 0

    def __enter__(self) -> Self:
        # A leftover can only be our own: of a process that had our id and died.
        with contextlib.suppress(FileNotFoundError):
            self._temporary.unlink()
        fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._mode)
        self.file = os.fdopen(fd, "wb", buffering=1 << 20)
        return self

    def hand_over(self) -> None:
        """Let the disk begin with what was written so far, if all of it is to be flushed in the end: it works
        while the rest is put together."""
        if self._durable and hasattr(os, "posix_fadvise"):
            self.file.flush()
            start, self._handed_over = self._handed_over, self.file.tell()
            # Linux begins to write what it is told will not be read. What is not on the disk yet it keeps.
            os.posix_fadvise(self.file.fileno(), start, self._handed_over - start, os.POSIX_FADV_DONTNEED)

    def commit(self, *, new: bool = False) -> None:
        """Let the new file be seen. When durable it is on the disk before it is, and so is its name after.

        A `new` file takes nobody's place: FileExistsError if there is one of its name.
        """
        self.file.flush()
        if self._durable:
            _flush_to_disk(self.file.fileno())
        if new:
            _rename_to_free(self._temporary, self._path)
        else:
            self._temporary.replace(self._path)
        self._committed = True
        if self._durable:
            _flush_directory(self._path.parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._committed:
                self.file.close()
            else:
                # Closing flushes, which fails once more on a full disk.
                with contextlib.suppress(OSError):
                    self.file.close()
        finally:
            if not self._committed:
                with contextlib.suppress(FileNotFoundError):
                    self._temporary.unlink()


def _rename_to_free(path: Path, name: Path) -> None:
    """Rename `path`, but over no other file, not even one that another process makes at this moment."""
    try:
        name.hardlink_to(path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if name.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name)) from None
        path.replace(name)
    else:
        path.unlink()


def _flush_to_disk(fd: int) -> None:
    # On macOS fsync stops at the drive's own cache; not every file system there knows the full flush.
    full_flush = getattr(fcntl, "F_FULLFSYNC", None)
    if full_flush is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, full_flush)
            return
    os.fsync(fd)


def _flush_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
