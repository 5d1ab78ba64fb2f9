"""Stores over synthetic sessions: one token is one byte, every number follows from the tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

from shared.kv.files.cache_file import cache_name
from shared.kv.files.header import Reason
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.outcomes import Key, Saved
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import KvStore
from shared.session import Session
from tests.support.clock import FakeClock
from tests.support.synthetic_session import SyntheticSession, text_of

MODEL = ModelIdentity(model_id=0, quant_bits=2, fingerprint="ab" * 32, name="synthetic")
NOW = 1_700_000_000.0


class OpenStore:
    """A store with the lines that it said, and shorthands for what programs do with it."""

    def __init__(
        self,
        directory: Path,
        *,
        model: ModelIdentity = MODEL,
        clock: Callable[[], float] | None = None,
        free: Callable[[Path], int] = lambda directory: 1 << 40,
        context: int = 512,
        **settings: Any,
    ) -> None:
        self.said: list[str] = []
        self.context = context
        self.store = KvStore(
            directory,
            model,
            StoreSettings(**{"min_tokens": 16, "durable": False, **settings}),
            say=self.said.append,
            decode=text_of,
            clock=clock or FakeClock(NOW),
            free=free,
        )

    def save(
        self,
        text: bytes,
        reason: Reason = Reason.COLD,
        *,
        calls: Mapping[str, bytes] | None = None,
        protect: Collection[str] = (),
        wait: bool = True,
    ) -> Saved:
        """Save the state of a session that holds `text`; `wait` until it is on disk."""
        session = cast(Session, SyntheticSession(self.context).become(text))
        saved = self.store.save(session, Key(text), reason, tool_map=calls, protect=protect)
        if wait:
            self.store.flush()
        return saved

    def ask(self, prompt: bytes) -> bytes:
        """The text of the first file for `prompt` that loads; empty without one. Its state is checked."""
        session = SyntheticSession(self.context)
        for file in self.store.find(prompt, self.context):
            if self.store.load(file, prompt, cast(Session, session), lambda tokens, file: True):
                assert session.is_genuine()
                return text_of(session.tokens)
        return b""

    def lines(self, beginning: str) -> list[str]:
        """The log lines that begin so."""
        return [line for line in self.said if line.startswith(beginning)]


def load_best(store: KvStore, prompt: bytes, context: int) -> SyntheticSession | None:
    """What a program gets for `prompt`: the best file that loads. It is what its name and its key say;
    whether its state is genuine is for the caller to ask."""
    session = SyntheticSession(context)
    for file in store.find(prompt, context):
        loaded = store.load(file, prompt, cast(Session, session), lambda tokens, file: True)
        if loaded is not None:
            assert prompt.startswith(loaded.text)
            assert text_of(loaded.tokens) == loaded.text
            assert file.name == cache_name(loaded.text)
            return session
    return None


def stored_texts(directory: Path) -> set[bytes]:
    """The key texts of the files in the directory."""
    texts = set()
    for path in directory.glob("*.kv"):
        content = path.read_bytes()
        texts.add(content[52 : 52 + int.from_bytes(content[48:52], "little")])
    return texts
