"""What the ranking is told: which files an incoming one makes needless, and which are asked about at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.kv.files.cache_file import CacheFile, cache_name, read_cache_file
from shared.kv.files.header import Reason
from shared.kv.store import room as room_module
from shared.kv.store.eviction import Candidate, Victims
from shared.kv.store.lineage import Lineage
from shared.kv.store.policy import StoreSettings
from shared.kv.store.room import Incoming, Room
from tests.support.cache_builder import put_cache_file

TEXT = b"a conversation that grows and grows"
CONTINUED: dict[str, int] = {"reason": Reason.CONTINUED}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Candidate]:
    """The candidates of every question to the ranking."""
    seen: list[Candidate] = []

    def note(candidates: list[Candidate], *rest: Any, **options: Any) -> Victims:
        seen.extend(candidates)
        return Victims()

    monkeypatch.setattr(room_module, "choose_victims", note)
    return seen


def _incoming(folder: Path, **fields: int) -> Incoming:
    other = folder / "incoming"
    other.mkdir()
    return Incoming(TEXT, read_cache_file(put_cache_file(other, TEXT, **fields)))


def _superseded(folder: Path, asked: list[Candidate], incoming: dict[str, int], **fields: int) -> bool:
    """Whether `incoming` makes a file of a beginning of its text, with these fields, needless."""
    file = read_cache_file(put_cache_file(folder, TEXT[:20], payload=b"x", **fields))
    Room(StoreSettings(budget_bytes=1), Lineage()).plan([file], _incoming(folder, **incoming), 0)
    (candidate,) = asked
    assert candidate.name == file.name
    return candidate.superseded


@pytest.mark.parametrize("reason", [Reason.COLD, Reason.CONTINUED, Reason.EVICT, Reason.SHUTDOWN])
def test_a_continued_state_by_any_longer_one(tmp_path: Path, asked: list[Candidate], reason: Reason) -> None:
    assert _superseded(tmp_path, asked, {"reason": reason}, **CONTINUED)


@pytest.mark.parametrize("reason", [Reason.COLD, Reason.EVICT, Reason.SHUTDOWN])
def test_no_other_state(tmp_path: Path, asked: list[Candidate], reason: Reason) -> None:
    assert not _superseded(tmp_path, asked, CONTINUED, reason=reason)


def test_not_where_the_new_one_cannot_be_loaded(tmp_path: Path, asked: list[Candidate]) -> None:
    assert not _superseded(tmp_path, asked, {"context": 2048}, context=2047, **CONTINUED)


def test_not_of_another_model(tmp_path: Path, asked: list[Candidate]) -> None:
    assert not _superseded(tmp_path, asked, {}, model_id=1, **CONTINUED)


def test_not_of_another_conversation(tmp_path: Path, asked: list[Candidate]) -> None:
    file = read_cache_file(put_cache_file(tmp_path, b"another text", **CONTINUED))
    Room(StoreSettings(budget_bytes=1), Lineage()).plan([file], _incoming(tmp_path), 0)
    assert not asked[0].superseded


def test_nobody_is_asked_while_there_is_room(tmp_path: Path, asked: list[Candidate]) -> None:
    file = read_cache_file(put_cache_file(tmp_path, TEXT[:20]))
    incoming = _incoming(tmp_path)
    exactly = file.size + incoming.file.size
    Room(StoreSettings(budget_bytes=exactly), Lineage()).plan([file], incoming, 0)
    Room(StoreSettings(budget_bytes=None), Lineage()).plan([file] * 9, incoming, 0)
    assert asked == []
    Room(StoreSettings(budget_bytes=exactly - 1), Lineage()).plan([file], incoming, 0)
    assert len(asked) == 1


def test_a_file_that_is_replaced_takes_no_room_of_its_own(tmp_path: Path, asked: list[Candidate]) -> None:
    incoming = _incoming(tmp_path)
    old = read_cache_file(put_cache_file(tmp_path, TEXT))
    assert old.name == incoming.file.name == cache_name(TEXT)
    Room(StoreSettings(budget_bytes=incoming.file.size), Lineage()).plan([old], incoming, 0)
    assert asked == []


def test_an_anchor_is_told_by_its_branches(tmp_path: Path, asked: list[Candidate]) -> None:
    texts = [b"base", b"base one", b"base two"]
    files: list[CacheFile] = [read_cache_file(put_cache_file(tmp_path, text)) for text in texts]
    Room(StoreSettings(budget_bytes=1), Lineage()).plan(files, None, 0)
    assert [candidate.shared_anchor for candidate in asked] == [True, False, False]
