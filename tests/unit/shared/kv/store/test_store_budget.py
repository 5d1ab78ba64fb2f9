"""A directory that is full: what is written at all, what goes for it, and what never goes."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import cast

import pytest

from shared.kv.files.cache_file import cache_name
from shared.kv.files.header import Reason
from shared.kv.store import saver as saver_module
from shared.kv.store.outcomes import Key
from shared.kv.store.writer import Job
from shared.session import Session
from tests.support.cache_builder import put_cache_file
from tests.support.clock import FakeClock
from tests.support.stores import NOW, OpenStore, stored_texts
from tests.support.synthetic_session import SyntheticSession

LONG = random.Random(3).randbytes(500)
HALF_DAY = 12 * 3600


def _size(text: bytes, context: int = 512) -> int:
    """Bytes of the file of a session that holds `text`."""
    return 52 + len(text) + SyntheticSession(context).become(text).payload_bytes()


def _hold(one: OpenStore) -> threading.Event:
    """Keep the writer busy until the event is set."""
    gate = threading.Event()

    def run() -> None:
        assert gate.wait(10)

    one.store._saver.writer.put(Job("busy", b"", 0, False, run, lambda: None))
    return gate


def _used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.kv"))


def test_one_growing_conversation_in_hardly_more_than_one_file(tmp_path: Path) -> None:
    """The longest state always survives, nothing is written to be removed in the same breath, and no more is
    written than one file for each save."""
    budget = int(1.2 * _size(LONG))
    one = OpenStore(tmp_path, budget_bytes=budget)
    written = 0
    for length in (100, 200, 300, 400, 500):
        saved = one.save(LONG[:length], Reason.CONTINUED)
        assert saved.stored
        written += saved.bytes
        assert LONG[:length] in stored_texts(tmp_path)
        assert _used(tmp_path) <= budget
    assert written == sum(_size(LONG[:length]) for length in (100, 200, 300, 400, 500))
    assert one.ask(LONG) == LONG
    evicted = {line.rpartition("file=")[2] for line in one.lines("kv evicted reason=disk-cache-full")}
    assert cache_name(LONG) not in evicted
    one.store.close()


def test_states_of_one_prompt_that_come_faster_than_they_are_written(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=int(1.2 * _size(LONG)))
    gate = _hold(one)
    for length in (200, 300, 400, 500):
        assert one.save(LONG[:length], Reason.CONTINUED, wait=False).stored
    again = one.save(LONG, Reason.CONTINUED, wait=False)
    assert (again.stored, again.why, again.bytes) == (True, "already being written", 0)
    gate.set()
    one.store.flush()
    assert [line.rpartition("file=")[2] for line in one.lines("kv stored")] == [cache_name(LONG)]
    assert stored_texts(tmp_path) == {LONG}
    reasons = [line.rpartition(": ")[2] for line in one.lines("kv skipped")]
    assert reasons[:3] == ["a longer state of the same conversation came before it was written"] * 3
    one.store.close()


def test_nothing_is_written_that_would_go_at_once(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    one = OpenStore(tmp_path, budget_bytes=int(1.2 * _size(LONG)), clock=clock)
    one.save(LONG)
    for _ in range(3):
        assert one.ask(LONG) == LONG
    saved = one.save(b"x" * 300, Reason.CONTINUED)
    assert (saved.stored, saved.bytes) == (False, 0)
    assert saved.why == "it would be the first to be evicted"
    assert one.lines("kv evicted") == []
    assert stored_texts(tmp_path) == {LONG}
    clock.now += 10 * HALF_DAY
    assert one.save(b"x" * 300, Reason.CONTINUED).stored, "old hits fade"
    one.store.close()


def test_a_file_larger_than_the_budget(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=_size(LONG))
    one.save(b"y" * 50)
    assert one.save(LONG).why.endswith("do not fit the budget")
    assert stored_texts(tmp_path) == {b"y" * 50}
    one.store.close()


def test_a_common_beginning_survives_dead_ends(tmp_path: Path) -> None:
    """A small cold file that five prompts begin with, and one large state after another that nobody asks for
    again: large files are worth more for each byte, and must go all the same."""
    clock = FakeClock(NOW)
    anchor = b"the system prompt and its tools" + b"."
    one = OpenStore(tmp_path, budget_bytes=3 * _size(LONG), clock=clock)
    one.save(anchor)
    for number in range(5):
        clock.now += 600
        assert one.ask(anchor + b"question %d" % number) == anchor
    for number in range(8):
        clock.now += 600
        assert one.save(random.Random(number).randbytes(500), Reason.EVICT).stored
        assert anchor in stored_texts(tmp_path)
    assert one.ask(anchor + b"question 6") == anchor
    assert one.store.contents()[0] == 3
    one.store.close()


def test_conversations_that_branch_make_an_anchor(tmp_path: Path) -> None:
    """Nobody has asked for the common beginning yet; two files that go on from it differently are enough."""
    clock = FakeClock(NOW)
    anchor = LONG[:32]
    one = OpenStore(tmp_path, budget_bytes=3 * _size(LONG), clock=clock)
    one.save(anchor)
    for number in range(6):
        clock.now += HALF_DAY
        text = anchor + random.Random(number).randbytes(468)
        assert one.save(text, Reason.EVICT).stored
        assert anchor in stored_texts(tmp_path)
    one.store.close()


def test_what_is_about_to_be_loaded_makes_no_room(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=int(2.2 * _size(LONG)))
    wanted, other, third = LONG, b"o" * 500, b"t" * 500
    one.save(wanted, Reason.CONTINUED)
    one.save(other, Reason.COLD)
    names = [file.name for file in one.store.find(wanted, 512)]
    assert one.save(third, Reason.EVICT, protect=names).stored
    assert stored_texts(tmp_path) == {wanted, third}
    assert one.ask(wanted) == wanted
    one.store.close()


def test_found_files_stay_when_an_older_save_gets_its_turn(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=int(1.2 * _size(LONG)))
    one.save(LONG, Reason.CONTINUED)
    gate = _hold(one)
    assert one.save(b"e" * 500, Reason.EVICT, wait=False).stored
    assert one.store.find(LONG, 512)
    gate.set()
    one.store.flush()
    assert stored_texts(tmp_path) == {LONG}
    assert one.lines("kv skipped")[0].endswith("it would be the first to be evicted")
    one.store.close()


def test_a_save_keeps_what_it_protects_until_its_turn(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=int(2.2 * _size(LONG)))
    one.save(LONG, Reason.CONTINUED)
    one.save(b"o" * 500, Reason.COLD)
    gate = _hold(one)
    assert one.save(b"e" * 500, Reason.EVICT, protect=[cache_name(LONG)], wait=False).stored
    one.store.find(b"nothing of the kind", 512)
    gate.set()
    one.store.flush()
    assert stored_texts(tmp_path) == {LONG, b"e" * 500}
    one.store.close()


def test_what_is_wanted_since_the_choice_was_made_stays(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(LONG)
    shelf, name = one.store._shelf, cache_name(LONG)
    shelf.pin([name])
    shelf.evict([name])
    shelf.pin([])
    with shelf.using(name):
        shelf.evict([name])
    assert stored_texts(tmp_path) == {LONG}
    shelf.evict([name])
    assert list(tmp_path.glob("*.kv*")) == []
    one.store.close()


def test_a_file_is_not_removed_while_it_is_loaded(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=int(1.2 * _size(LONG)))
    one.save(LONG, Reason.CONTINUED)
    (file,) = one.store.find(LONG, 512)
    one.store.find(b"nothing of the kind", 512)  # it is not held by having been found
    there: list[bool] = []

    class Slow(SyntheticSession):
        def load(self, source: object, payload_bytes: int) -> None:
            one.save(b"e" * 500, Reason.EVICT)
            there.append(file.path.exists())
            super().load(source, payload_bytes)  # type: ignore[arg-type]

    assert one.store.load(file, LONG, cast(Session, Slow()), lambda tokens, file: True)
    assert there == [True]
    one.store.close()


def test_the_old_file_goes_after_the_new_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in the middle must not cost both."""
    one = OpenStore(tmp_path, budget_bytes=int(1.2 * _size(LONG)))
    one.save(LONG[:400], Reason.CONTINUED)
    seen: list[set[bytes]] = []
    write = saver_module.write_cache_file

    def watched(*parts: object, **options: object) -> object:
        seen.append(stored_texts(tmp_path))
        return write(*parts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(saver_module, "write_cache_file", watched)
    one.save(LONG, Reason.CONTINUED)
    assert seen == [{LONG[:400]}]
    assert stored_texts(tmp_path) == {LONG}
    one.store.close()


def test_unless_the_disk_has_no_room_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = saver_module.DISK_RESERVE_BYTES + _size(LONG) // 2
    one = OpenStore(tmp_path, budget_bytes=int(1.2 * _size(LONG)), free=lambda directory: free)
    put_cache_file(tmp_path, LONG[:400], payload=bytes(_size(LONG)), tokens=400, reason=Reason.CONTINUED)
    seen: list[set[bytes]] = []
    write = saver_module.write_cache_file

    def watched(*parts: object, **options: object) -> object:
        seen.append(stored_texts(tmp_path))
        return write(*parts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(saver_module, "write_cache_file", watched)
    assert one.save(LONG, Reason.CONTINUED).stored
    assert seen == [set()]
    one.store.close()


def test_a_start_with_too_much_makes_room(tmp_path: Path) -> None:
    for number, text in enumerate([b"oldest", b"older", b"newest"]):
        put_cache_file(tmp_path, text, payload=bytes(1000), tokens=100, used=int(NOW) + number)
    one = OpenStore(tmp_path, budget_bytes=2500)
    assert stored_texts(tmp_path) == {b"older", b"newest"}
    assert len(one.lines("kv evicted reason=disk-cache-full tokens=100 hits=0 size=")) == 1
    one.store.close()


def test_sessions_that_a_user_saved_neither_count_nor_go(tmp_path: Path) -> None:
    put_cache_file(tmp_path, b"by title", payload=bytes(5000), extensions=8)
    put_cache_file(tmp_path, b"by reason", payload=bytes(5000), reason=Reason.AGENT_SESSION)
    put_cache_file(tmp_path, b"cache", payload=bytes(1000))
    one = OpenStore(tmp_path, budget_bytes=2000)
    assert stored_texts(tmp_path) == {b"by title", b"by reason", b"cache"}
    one.store.close()


def test_foreign_files_neither_count_nor_go(tmp_path: Path) -> None:
    put_cache_file(tmp_path, b"older", payload=bytes(5000), abi=0)
    put_cache_file(tmp_path, b"newer", payload=bytes(5000), abi=3)
    put_cache_file(tmp_path, b"cache", payload=bytes(1000))
    one = OpenStore(tmp_path, budget_bytes=2000)
    assert one.said == []
    assert stored_texts(tmp_path) == {b"older", b"newer", b"cache"}
    one.store.close()


def test_no_budget_no_eviction(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=None)
    for number in range(5):
        one.save(random.Random(number).randbytes(500))
    assert one.store.contents()[0] == 5
    one.store.close()


def test_a_long_queue_leaves_out_saves_on_the_way_only(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    writer = one.store._saver.writer
    assert writer.reserve((2 << 30) - 100, wait=False)
    saved = one.save(LONG, Reason.CONTINUED)
    assert (saved.stored, saved.why) == (False, "too much is waiting to be written")
    writer.release((2 << 30) - 100)
    assert one.save(LONG, Reason.CONTINUED).stored
    session = cast(Session, SyntheticSession().become(b"z" * 40))
    assert one.store.save(session, Key(b"z" * 40), Reason.COLD).stored
    one.store.close()
