"""The saved conversations of one model: ours in one folder, and those of other folders to read.

Lists, finds, loads, writes, strips and deletes them. Spec: kv §10. Must not know: when to save, how a
conversation is shown.
"""

from __future__ import annotations

import contextlib
import io
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from shared.errors import CacheFileError, ForeignFile
from shared.kv.files.cache_file import is_cache_name, read_cache_file
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.checksum import remove_sidecar
from shared.kv.files.header import PAYLOAD_ABI, Extension, Header, Reason
from shared.kv.files.trailers import encode_title, read_title
from shared.kv.sessions.capture import Capture, NameTaken, NotSaved, with_payload
from shared.kv.sessions.identity import session_name
from shared.kv.sessions.loading import load_state
from shared.kv.sessions.stored_session import (
    StoredSession,
    UnusableSession,
    read_stored_session,
    read_text,
)
from shared.kv.sessions.strip import stripped_tokens
from shared.kv.store.leftovers import remove_leftovers
from shared.kv.store.model_identity import ModelIdentity
from shared.session import Session
from shared.text.tokenizer import Tokenizer

_PREFIX: Final = re.compile(r"[0-9a-fA-F]{1,40}")
# Names in a message about a prefix that fits several sessions.
_MOST_NAMED: Final = 4


class NoSuchSession(UnusableSession):
    """No session, or more than one, has the id that was asked for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a conversation is told by for ever: its title and the second (Unix) of its first message."""

    title: bytes
    created_at: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return session_name(self.title, self.created_at)


class SessionFolder:
    """`own` is made at the first save and the only folder that is written; of `others` sessions are read."""

    def __init__(
        self,
        own: Path,
        *,
        others: Sequence[Path] = (),
        model: ModelIdentity,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives Unix seconds."""
        self.own = own
        self._model = model
        self._clock = clock
        same = own.resolve()
        self._folders = [(own, True), *((other, False) for other in others if other.resolve() != same)]

    def clean(self) -> None:
        """Remove from our folder what processes left there that died in a write. Before the first save."""
        with contextlib.suppress(OSError):
            remove_leftovers(self.own, self._clock())

    def sessions(self) -> list[StoredSession]:
        """All sessions of this model, the latest used first. Files that cannot be read are passed over."""
        found: dict[str, StoredSession] = {}
        for path, writable in self._paths(""):
            with contextlib.suppress(CacheFileError, OSError):
                self._keep_newer(found, read_stored_session(path, writable=writable))
        return sorted(found.values(), key=lambda stored: (-stored.file.header.used_at, stored.file.name))

    def newest(self) -> StoredSession:
        """The session that was saved last. Raises NoSuchSession."""
        sessions = self.sessions()
        if not sessions:
            raise NoSuchSession(f"there is no saved session of this model in {self.own}")
        # Two saves may share a second.
        return max(sessions, key=lambda stored: (stored.file.header.used_at, _modified(stored.file.path)))

    def find(self, prefix: str) -> StoredSession:
        """The one session of this model whose id starts with `prefix`, 1 to 40 hex digits.

        Raises NoSuchSession, and UnusableSession where the only such file is damaged.
        """
        if not _PREFIX.fullmatch(prefix):
            raise NoSuchSession(
                f"{prefix[:50]!r} is no session id: give its first hex digits, as /list shows them"
            )
        found: dict[str, StoredSession] = {}
        damage = None
        for path, writable in self._paths(prefix.lower()):
            try:
                self._keep_newer(found, read_stored_session(path, writable=writable))
            except ForeignFile:
                continue
            except CacheFileError as error:
                damage = str(error)
            except OSError as error:
                damage = f"{path.name} cannot be read: {error.strerror or error}"
        if len(found) > 1:
            ids = ", ".join(
                sorted(stored.identity[: len(prefix) + 8] for stored in found.values())[:_MOST_NAMED]
            )
            raise NoSuchSession(f"{len(found)} sessions start with {prefix}: {ids}; give more digits")
        if not found:
            raise (
                UnusableSession(damage)
                if damage
                else NoSuchSession(f"no session starts with {prefix}: see /list")
            )
        return next(iter(found.values()))

    def read(self, stored: StoredSession) -> bytes:
        """The text of a session, checked against its name. Raises UnusableSession."""
        with _readable(stored), open_cache_file(stored.file.path, any_abi=True) as reader:
            return read_text(stored, reader)

    def capture(
        self, origin: Origin, text: bytes, *, tokens: int, context: int, payload: tuple[memoryview, ...] = ()
    ) -> Capture:
        """All parts of the file of a conversation of `tokens` tokens; stripped without a `payload`."""
        header = Header(
            quant_bits=self._model.quant_bits,
            reason=Reason.AGENT_SESSION,
            extensions=Extension.TITLE,
            model_id=self._model.model_id,
            tokens=tokens,
            hits=0,
            context=context,
            created_at=origin.created_at,
            last_used=self._now(origin.created_at),
            payload_bytes=0,
        )
        return Capture(origin.name, with_payload(header, payload), text, payload, encode_title(origin.title))

    def write(self, capture: Capture, *, instead_of: StoredSession | None = None) -> StoredSession:
        """Write a session into our folder. The file of a legacy session that it continues goes.

        If a file of that name is there and not the one that was `instead_of`, it is that of another program,
        which has gone on with the conversation or begun one with the same words in the same second: it stays
        as it is, and `capture` becomes a session of its own. Raises NotSaved.
        """
        if instead_of and self._is_still(capture.name, instead_of):
            return self._put(capture)
        try:
            written = self._put(capture, new=True)
        except NameTaken:
            return self._put_apart(capture)
        if instead_of and instead_of.writable and instead_of.file.name != capture.name:
            with contextlib.suppress(OSError):
                _remove(instead_of.file.path)
        return written

    def strip(self, stored: StoredSession, tokenizer: Tokenizer) -> StoredSession:
        """Keep text and title of a session and drop its state. Raises UnusableSession, NotSaved."""
        self._check_writable(stored)
        with _readable(stored), open_cache_file(stored.file.path, any_abi=True) as reader:
            text = read_text(stored, reader)
            tokens = stripped_tokens(stored, reader, text, tokenizer)
        header = replace(
            stored.file.header,
            extensions=stored.file.header.extensions & ~Extension.TOOL_MAP,
            tokens=max(1, len(tokens)),
            last_used=self._now(stored.created_at),
            payload_bytes=0,
            payload_abi=PAYLOAD_ABI,
        )
        trailer = b"" if stored.legacy else encode_title(stored.title)
        return self._put(Capture(stored.file.path.name, header, text, trailer=trailer))

    def delete(self, stored: StoredSession) -> None:
        """Remove a session. Raises UnusableSession, NotSaved."""
        self._check_writable(stored)
        try:
            _remove(stored.file.path)
        except OSError as error:
            raise NotSaved(f"cannot delete {stored.file.path}: {error.strerror or error}") from None

    def load(self, stored: StoredSession, session: Session) -> list[int]:
        """Put `session` into the state of `stored`, which must not be stripped; returns its tokens.

        Raises UnusableSession; the session is then as before, or invalid when the state itself was at fault.
        """
        header = stored.file.header
        if header.quant_bits != self._model.quant_bits:
            raise UnusableSession(
                f"session {stored.short_id} was saved with {header.quant_bits}-bit weights and these have "
                f"{self._model.quant_bits}: its state does not fit; /strip {stored.short_id} keeps its "
                "text, which does"
            )
        check_room(stored, max(header.context, header.tokens + 1), session.context)
        return load_state(stored, session)

    def _put(self, capture: Capture, *, new: bool = False) -> StoredSession:
        capture.write(self.own, new=new)
        written = read_stored_session(self.own / capture.name, writable=True)
        assert written is not None
        return written

    def _is_still(self, name: str, known: StoredSession) -> bool:
        """Whether the session of that name in our folder is the `known` one, and as it was."""
        try:
            return (
                known.file.name == name
                and read_cache_file(self.own / name, any_abi=True).header == known.file.header
            )
        except (CacheFileError, OSError):
            return False

    def _put_apart(self, capture: Capture) -> StoredSession:
        """Write a conversation as if it had begun later, in the first second that gives it a free name."""
        title, created_at = read_title(io.BytesIO(capture.trailer)), capture.header.created_at
        while True:
            created_at += 1
            used = max(created_at, capture.header.last_used)
            header = replace(capture.header, created_at=created_at, last_used=used)
            name = session_name(title, created_at)
            with contextlib.suppress(NameTaken):
                return self._put(replace(capture, name=name, header=header), new=True)

    def _now(self, created_at: int) -> int:
        """The time of a save; a clock that was set back does not put it before the conversation."""
        return max(int(self._clock()), created_at)

    def _paths(self, prefix: str) -> Iterator[tuple[Path, bool]]:
        for folder, writable in self._folders:
            try:
                names = sorted(path.name for path in folder.iterdir())
            except OSError:
                continue
            for name in names:
                if is_cache_name(name) and name.lower().startswith(prefix):
                    yield folder / name, writable

    def _keep_newer(self, found: dict[str, StoredSession], stored: StoredSession | None) -> None:
        if stored is None or stored.file.header.model_id != self._model.model_id:
            return
        known = found.get(stored.identity)
        if known is None or known.file.header.used_at < stored.file.header.used_at:
            found[stored.identity] = stored

    @staticmethod
    def _check_writable(stored: StoredSession) -> None:
        if not stored.writable:
            folder = stored.file.path.parent
            raise UnusableSession(
                f"session {stored.short_id} lies in {folder}, which is only read: start with "
                f"--kv-disk-dir {folder}"
            )


def check_room(stored: StoredSession, needed: int, context: int) -> None:
    """Raises UnusableSession when a session needs a context of `needed` tokens and has less."""
    if needed > context:
        raise UnusableSession(
            f"session {stored.short_id} needs a context of {needed} tokens and this one has {context}: "
            f"start with --ctx {needed}, or /ctx {needed} first"
        )


@contextlib.contextmanager
def _readable(stored: StoredSession) -> Iterator[None]:
    """Turns what can go wrong with a file into UnusableSession."""
    try:
        yield
    except CacheFileError as error:
        raise UnusableSession(str(error)) from None
    except FileNotFoundError:
        raise NoSuchSession(f"session {stored.short_id} is not there any more") from None
    except OSError as error:
        raise UnusableSession(f"cannot read {stored.file.path}: {error.strerror or error}") from None


def _remove(path: Path) -> None:
    path.unlink()
    remove_sidecar(path)


def _modified(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0
