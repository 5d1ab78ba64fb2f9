"""Saved conversations for tests: a folder of them, and the bytes of files that other writers left."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

from shared.kv.sessions.capture import copy_state
from shared.kv.sessions.folder import Origin, SessionFolder
from shared.kv.sessions.stored_session import StoredSession
from shared.kv.store.model_identity import ModelIdentity
from shared.scripted.vocabulary import tokenizer
from shared.session import Session
from tests.support.cache_builder import CREATED, cache_bytes
from tests.support.clock import FakeClock

FLASH = ModelIdentity(model_id=0, quant_bits=2, fingerprint="f" * 64, name="a model")


def folder_in(
    path: Path, *, others: Sequence[Path] = (), model: ModelIdentity = FLASH, clock: FakeClock | None = None
) -> SessionFolder:
    return SessionFolder(path, others=others, model=model, clock=clock or FakeClock(CREATED))


def save(
    folder: SessionFolder,
    title: str,
    text: str = "x",
    *,
    session: Session | None = None,
    created: int = CREATED,
) -> StoredSession:
    """Save a conversation: with the state of `session`, whose tokens are then the text, or stripped."""
    origin = Origin(title.encode(), created)
    if session is None:
        return folder.write(folder.capture(origin, text.encode(), tokens=len(text), context=2048))
    return folder.write(
        folder.capture(
            origin,
            tokenizer().decode(session.tokens),
            tokens=session.position,
            context=session.context,
            payload=copy_state(session),
        )
    )


def put_session(
    folder: Path, title: bytes | None, text: bytes, payload: bytes = b"", *, tokens: int = 3, **fields: int
) -> Path:
    """A session file put together from the format's tables; without a `title`, a legacy one."""
    key = text if title is None else title + CREATED.to_bytes(8, "little")
    trailer = b"" if title is None else struct.pack("<I", len(title)) + title
    flags = {"reason": 6, "extensions": 0 if title is None else 8, **fields}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha1(key).hexdigest()}.kv"
    path.write_bytes(cache_bytes(text, payload, tokens=tokens, trailer=trailer, **flags))
    return path


def saved_files(tmp_path: Path) -> list[str]:
    """Names of the sessions in the folder that the chats of a test save in."""
    folder = tmp_path / "sessions"
    return sorted(path.name for path in folder.glob("*.kv")) if folder.exists() else []


def saved_ids(tmp_path: Path) -> list[str]:
    """Their ids, as people type them."""
    return [name[:8] for name in saved_files(tmp_path)]
