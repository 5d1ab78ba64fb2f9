"""A store knows nothing of what a payload holds: sessions of the scripted engine, with their own payload."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import EngineFault
from shared.kv.files.cache_file import cache_name
from shared.kv.files.header import Reason
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.outcomes import Key
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import KvStore
from shared.scripted.engine import ScriptedEngine
from tests.support.scripts import scripted, turn

PROMPT = b"a prompt of more than sixteen tokens"


def _open(directory: Path, engine: ScriptedEngine, said: list[str]) -> KvStore:
    model = ModelIdentity(engine.model_id, engine.quant_bits, "ab" * 32, engine.name)
    settings = StoreSettings(min_tokens=16, durable=False)
    return KvStore(directory, model, settings, say=said.append, decode=engine.tokenizer.decode)


def _store(directory: Path) -> None:
    """A directory with the state after `PROMPT`."""
    engine = scripted(turn("hello"))
    store = _open(directory, engine, [])
    session = engine.open_session(512)
    session.sync(list(PROMPT))
    assert store.save(session, Key(PROMPT), Reason.COLD).stored
    store.close()


def test_a_state_goes_through_a_file(tmp_path: Path) -> None:
    _store(tmp_path)
    engine, said = scripted(turn("hello")), list[str]()
    store, session = _open(tmp_path, engine, said), engine.open_session(512)
    (file,) = store.find(PROMPT + b" and more", 512)
    loaded = store.load(file, PROMPT + b" and more", session, lambda tokens, file: True)
    assert loaded is not None
    assert loaded.tokens == session.tokens == list(PROMPT)
    assert session.sync(list(PROMPT + b" and more")) == (len(PROMPT), 9)
    store.close()


def test_a_sound_file_that_breaks_the_engine_is_gone_for_the_next_attempt(tmp_path: Path) -> None:
    _store(tmp_path)
    engine, said = scripted(turn("hello", fail={"at": "sync-after-load"})), list[str]()
    store, session = _open(tmp_path, engine, said), engine.open_session(512)
    (file,) = store.find(PROMPT, 512)
    assert store.load(file, PROMPT, session, lambda tokens, file: True)
    with pytest.raises(EngineFault):
        session.sync(list(PROMPT))
    store.unusable(file)
    assert store.find(PROMPT, 512) == []
    assert (tmp_path / "bad" / cache_name(PROMPT)).exists()
    assert session.sync(list(PROMPT)) == (0, len(PROMPT))
    store.close()


def test_a_load_that_fails_in_the_engine_leaves_the_file(tmp_path: Path) -> None:
    _store(tmp_path)
    engine, said = scripted(turn("hello", fail={"at": "load"})), list[str]()
    store, session = _open(tmp_path, engine, said), engine.open_session(512)
    (file,) = store.find(PROMPT, 512)
    assert store.load(file, PROMPT, session, lambda tokens, file: True) is None
    assert session.position == 0
    assert file.path.exists()
    assert store.find(PROMPT, 512) == [], "but it is not tried again"
    assert len(said) == 1
    store.close()
