"""Putting a live session into the state that a file holds, after everything that can be checked was checked.

Spec: kv §4.2, §10. Must not know: folders, policies, how a conversation is shown.
"""

from __future__ import annotations

from shared.errors import CacheFileError, DamagedFile, PayloadDamaged, PayloadError
from shared.kv.files.cache_reader import CacheReader, open_cache_file
from shared.kv.files.checksum import sidecar_path
from shared.kv.sessions.stored_session import StoredSession, UnusableSession, read_text
from shared.session import Session


def load_state(stored: StoredSession, session: Session) -> list[int]:
    """Put `session` into the saved state of `stored`, which must not be stripped; returns its tokens.

    Raises UnusableSession; the session is then as before, or invalid when the state itself was at fault.
    """
    path = stored.file.path
    try:
        with open_cache_file(path) as reader:
            read_text(stored, reader)
            take_payload(reader, session)
            return session.tokens
    except FileNotFoundError:
        raise UnusableSession(f"session {stored.short_id} is not there any more") from None
    except OSError as error:
        raise UnusableSession(f"cannot read {path}: {error.strerror or error}") from None
    except (DamagedFile, PayloadDamaged) as error:
        keeping = f"; /strip {stored.short_id} keeps its text" if stored.writable else ""
        raise UnusableSession(f"session {stored.short_id} is damaged: {error}{keeping}") from None
    except (CacheFileError, PayloadError) as error:
        raise UnusableSession(f"session {stored.short_id} cannot be loaded: {error}") from None


def take_payload(reader: CacheReader, session: Session) -> None:
    """Load the payload of an open file into `session` and check it against header and checksum.

    Raises PayloadError, DamagedFile, OSError; the session is then invalid.
    """
    header = reader.file.header
    try:
        session.load(reader.payload(), header.payload_bytes)
        if session.position != header.tokens:
            raise DamagedFile(f"its header says {header.tokens} tokens and its state has {session.position}")
        if reader.verify_checksum() is False and not _rewritten_since_checksum(reader):
            raise DamagedFile("its checksum is wrong")
    except BaseException:
        session.invalidate()
        raise


def _rewritten_since_checksum(reader: CacheReader) -> bool:
    """Whether the C engine, which keeps no checksums, saved this session over ours since: the name, the first
    moment and perhaps all sizes are the same then, but the checksum is older than the file."""
    path = reader.file.path
    return sidecar_path(path).stat().st_mtime_ns < path.stat().st_mtime_ns
