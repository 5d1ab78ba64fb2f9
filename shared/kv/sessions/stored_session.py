"""One saved conversation as it lies in a folder: what it is called, whether its state can be resumed.

Spec: kv §10. Reads headers, titles and, where there is no title, the text. Must not know: live sessions,
folders, how a conversation is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import DamagedFile, Ds4Error
from shared.kv.files.cache_file import CacheFile, cache_name
from shared.kv.files.cache_reader import CacheReader, open_cache_file
from shared.kv.files.header import PAYLOAD_ABI, Reason
from shared.kv.sessions.identity import session_name, title_of_text

# Files of the server's prefix store are no conversations, even where both lie in one folder.
SESSION_REASONS: Final = frozenset({Reason.AGENT_SESSION, Reason.UNKNOWN})
_SHORT_DIGITS: Final = 8


class UnusableSession(Ds4Error):
    """A saved conversation cannot be used for what was asked; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A file that holds a conversation. `title` is the stored one, or taken from the text where the file
    has none (`legacy`); `writable` says whether its folder is ours to change."""

    file: CacheFile
    title: bytes
    legacy: bool
    writable: bool

    @property
    def identity(self) -> str:
        """40 hex digits."""
        return self.file.path.stem.lower()

    @property
    def short_id(self) -> str:
        """The digits that people type."""
        return self.identity[:_SHORT_DIGITS]

    @property
    def stripped(self) -> bool:
        """Whether only its text can be used: it holds no state, or the state of an older writer."""
        header = self.file.header
        return header.payload_bytes == 0 or header.payload_abi != PAYLOAD_ABI

    @property
    def created_at(self) -> int:
        """Unix seconds of its first message; part of the identity, so that it never changes."""
        return self.file.header.created_at


def read_stored_session(path: Path, *, writable: bool) -> StoredSession | None:
    """The conversation in `path`; None if the file is something else.

    Raises ForeignFile, DamagedFile (a missing title counts), OSError.
    """
    with open_cache_file(path, any_abi=True) as reader:
        header = reader.file.header
        if header.reason not in SESSION_REASONS:
            return None
        title = reader.title()
        legacy = title is None
        return StoredSession(
            reader.file, title_of_text(reader.text()) if title is None else title, legacy, writable
        )


def read_text(stored: StoredSession, reader: CacheReader) -> bytes:
    """The text of `stored`, after its file's name was found to fit it. Raises DamagedFile.

    A conversation is named after its title and first moment; a legacy one after its whole text.
    """
    text = reader.text()
    expected = cache_name(text) if stored.legacy else session_name(stored.title, stored.created_at)
    if stored.file.name != expected:
        what = "text" if stored.legacy else "title and date"
        raise DamagedFile(
            f"session {stored.short_id} is damaged or was renamed: its name does not fit its {what}"
        )
    return text
