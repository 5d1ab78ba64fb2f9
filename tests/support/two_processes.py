"""One process writes to a store's directory without end while this one reads from it."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import cast

from shared.kv.files.header import Reason
from shared.kv.store.store import Key, KvStore
from shared.session import Session
from tests.support.crash_writer import CONTEXTS, CONVERSATIONS, Task, open_store, zygote
from tests.support.stores import load_best
from tests.support.synthetic_session import SyntheticSession


def read_while_another_writes(directory: Path, rounds: int) -> None:
    """Look things up `rounds` times. Whatever loads is whole, and nothing that the other wrote is blamed."""
    _begin(directory)
    said: list[str] = []
    source = random.Random(rounds)
    with zygote() as children:
        writer = children.start(Task(str(directory), 5, None))
        store = _open_beside_the_writer(directory, said)
        loaded = sum(_read(store, source.choice(CONVERSATIONS)) for _ in range(rounds))
        store.close()
        os.kill(writer, signal.SIGKILL)
        assert children.signal_of_the_end() == signal.SIGKILL, "the writer failed"
    assert loaded > rounds / 4
    assert not list(directory.glob("bad/*"))
    # Between the lookup and the load a file may go; nothing else is ever wrong with one.
    assert not [line for line in said if not line.startswith("kv hit") and "No such file" not in line]


def _begin(directory: Path) -> None:
    """Something is there from the start."""
    store = open_store(directory, [])
    for conversation in CONVERSATIONS:
        session = SyntheticSession().become(conversation[:50])
        assert store.save(cast(Session, session), Key(conversation[:50]), Reason.COLD).stored
    store.close()


def _open_beside_the_writer(directory: Path, said: list[str]) -> KvStore:
    """A store that is opened once the other process holds the directory."""
    while not (store := open_store(directory, said)).read_only:
        store.close()
    return store


def _read(store: KvStore, conversation: bytes) -> bool:
    """Whether a file of the conversation loaded; it then is what its name and its key say."""
    session = load_best(store, conversation, max(CONTEXTS))
    assert session is None or session.is_genuine()
    return session is not None
