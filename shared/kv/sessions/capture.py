"""A session's state copied out of the engine: all that one cache file will hold, ready to be written.

Copying needs the engine and its thread; writing needs neither. Spec: kv §1, §10. Must not know: folders,
how a conversation is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from shared.errors import Ds4Error
from shared.kv.files.cache_file import CacheFile
from shared.kv.files.cache_writer import write_cache_file
from shared.kv.files.header import Header
from shared.kv.store.payload_buffer import PayloadBuffer
from shared.session import Session


class NotSaved(Ds4Error):
    """A conversation could not be written; what was saved of it before is still there."""


class NameTaken(NotSaved):
    """There is a file of that name, and it is another conversation."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The parts of one file. `payload` is the state, empty for a stripped session."""

    name: str
    header: Header
    text: bytes
    payload: tuple[memoryview, ...] = ()
    trailer: bytes = b""

    def write(self, directory: Path, *, new: bool = False) -> CacheFile:
        """Write the file into `directory`, which is made if need be (mode 0700): wholly or not at all.

        Raises NotSaved, and NameTaken for a `new` file if there is one of its name.
        """
        path = directory / self.name
        # A state takes long to write: better not only to find out.
        if new and path.exists():
            raise NameTaken(f"there is a file {path} already")
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            return write_cache_file(path, self.header, self.text, self.payload, self.trailer, new=new)
        except OSError as error:
            if new and isinstance(error, FileExistsError) and path.exists():
                raise NameTaken(f"there is a file {path} already") from None
            raise NotSaved(f"cannot save in {directory}: {error.strerror or error}") from None


def copy_state(session: Session) -> tuple[memoryview, ...]:
    """The session's payload, copied: the session may go on while it is written."""
    buffer = PayloadBuffer(session.payload_bytes())
    session.save(buffer)
    return (buffer.content,)


def with_payload(header: Header, payload: tuple[memoryview, ...]) -> Header:
    """`header` with the size of `payload` in it."""
    return replace(header, payload_bytes=sum(map(len, payload)))
