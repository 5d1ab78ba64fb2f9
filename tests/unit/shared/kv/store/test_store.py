"""What a program saves it finds again: lookup, loading, saving, and the log lines of each."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pytest

from shared.errors import EngineFault, StoreUnavailable
from shared.kv.files.cache_file import CacheFile, cache_name
from shared.kv.files.header import Extension, Reason
from shared.kv.store import saver as saver_module
from shared.kv.store.outcomes import Key
from shared.kv.store.payload_buffer import PayloadBuffer
from shared.kv.store.writer import Job
from shared.session import Session
from tests.support.cache_builder import put_cache_file
from tests.support.clock import FakeClock
from tests.support.stores import MODEL, NOW, OpenStore, stored_texts
from tests.support.synthetic_session import SyntheticSession

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40


def test_a_saved_state_comes_back_number_by_number(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    saved = one.save(A + B)
    assert saved.stored
    assert saved.bytes == (tmp_path / cache_name(A + B)).stat().st_size
    one.store.close()
    later = OpenStore(tmp_path)
    assert later.ask(A + B + C) == A + B
    assert later.ask(A + B) == A + B
    assert later.ask(A + C) == b""
    later.store.close()


def test_the_longest_beginning_wins(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    for text in (A, A + B, A + B + C):
        one.save(text)
    assert [file.text_bytes for file in one.store.find(A + B + b"x", 512)] == [80, 40]
    assert one.ask(A + B + b"x") == A + B
    one.store.close()


def test_what_this_program_cannot_load_is_not_found(tmp_path: Path) -> None:
    writer = OpenStore(tmp_path, context=1024, min_tokens=1)
    writer.save(A)
    writer.save(b"short")
    writer.store.close()
    one = OpenStore(tmp_path)
    assert one.store.find(A, 1024)
    assert not one.store.find(A, 1023)
    assert not one.store.find(b"short", 1024)
    one.store.close()
    other = OpenStore(tmp_path, model=replace(MODEL, model_id=1))
    assert not other.store.find(A, 1024)
    other.store.close()


def test_a_stripped_file_holds_no_state(tmp_path: Path) -> None:
    put_cache_file(tmp_path, A, tokens=40, payload=b"", context=512)
    one = OpenStore(tmp_path)
    assert one.store.find(A, 512) == []
    assert one.save(A).bytes > 0, "and stands in no state's way"
    one.store.close()


def test_a_file_that_is_not_of_this_prompt_or_model_leaves_the_session_alone(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A)
    (file,) = one.store.find(A, 512)
    session = SyntheticSession().become(C)
    assert not one.store.load(file, B, cast(Session, session), lambda tokens, file: True)
    one.store.close()
    other = OpenStore(tmp_path, model=replace(MODEL, model_id=1))
    assert not other.store.load(file, A, cast(Session, session), lambda tokens, file: True)
    other.store.close()
    assert bytes(session.tokens) == C
    assert stored_texts(tmp_path) == {A}


def test_other_quants_only_if_they_are_welcome(tmp_path: Path) -> None:
    writer = OpenStore(tmp_path, model=replace(MODEL, quant_bits=4))
    writer.save(A)
    writer.store.close()
    for reject in (False, True):
        one = OpenStore(tmp_path, reject_other_quant=reject)
        assert bool(one.store.find(A, 512)) is not reject
        one.store.close()


def test_a_full_session_needs_a_larger_one(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, context=40)
    one.save(A)
    assert not one.store.find(A + B, 40)
    assert one.store.find(A + B, 41)
    one.store.close()


def test_hits_are_counted_in_the_file(tmp_path: Path) -> None:
    clock = FakeClock(NOW)
    one = OpenStore(tmp_path, clock=clock)
    one.save(A)
    for _ in range(2):
        clock.now += 100
        assert one.ask(A + B) == A
    one.store.close()
    content = (tmp_path / cache_name(A)).read_bytes()
    assert int.from_bytes(content[12:16], "little") == 2
    assert int.from_bytes(content[24:32], "little") == NOW
    assert int.from_bytes(content[32:40], "little") == NOW + 200


def test_a_state_that_is_not_accepted_stays(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A)
    session = SyntheticSession()
    (file,) = one.store.find(A + B, 512)
    seen = []

    def accepts(tokens: list[int], file: object) -> bool:
        seen.append(bytes(tokens))
        return False

    assert one.store.load(file, A + B, cast(Session, session), accepts) is None
    assert seen == [A]
    assert session.position == 0
    assert one.ask(A + B) == A
    one.store.close()


def test_a_file_that_is_gone_by_the_time_of_loading(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A)
    one.save(A + B)
    longest, shorter = one.store.find(A + B + C, 512)
    longest.path.unlink()
    session = SyntheticSession()
    assert one.store.load(longest, A + B + C, cast(Session, session), lambda tokens, file: True) is None
    assert one.store.load(shorter, A + B + C, cast(Session, session), lambda tokens, file: True)
    assert len(one.lines("kv load failed")) == 1
    assert [file.name for file in one.store.find(A + B + C, 512)] == [shorter.name]
    one.store.close()


def test_saving_twice_writes_once(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A)
    one.ask(A)
    before = (tmp_path / cache_name(A)).read_bytes()
    saved = one.save(A, Reason.EVICT)
    assert (saved.stored, saved.bytes) == (True, 0)
    assert (tmp_path / cache_name(A)).read_bytes() == before
    assert len(one.lines("kv stored")) == 1
    one.store.close()


def test_a_file_that_does_not_serve_is_replaced(tmp_path: Path) -> None:
    """A state saved in a larger context cannot be loaded by this one."""
    larger = OpenStore(tmp_path, context=1024)
    larger.save(A)
    larger.store.close()
    one = OpenStore(tmp_path)
    assert one.save(A).bytes > 0
    assert one.ask(A) == A
    one.store.close()


def test_a_file_of_another_version_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / cache_name(A)
    path.write_bytes(b"KVC\x02" + bytes(200))
    one = OpenStore(tmp_path)
    saved = one.save(A)
    assert (saved.stored, saved.why) == (False, "a file of another version has the same name")
    assert path.read_bytes() == b"KVC\x02" + bytes(200)
    assert one.store.contents() == (0, 0)
    one.store.close()


def test_log_lines(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    session = cast(Session, SyntheticSession().become(A))
    one.store.save(session, Key(A), Reason.COLD, trimmed=7)
    one.ask(A + B)
    one.save(A)
    one.store.close()
    size = f"{(tmp_path / cache_name(A)).stat().st_size / 2**20:.2f} MiB"
    said = [re.sub(r"\b[0-9]+ms", "9ms", line) for line in one.said]
    assert said == [
        f"kv stored tokens=40 trimmed=7 reason=cold key=token-text size={size} 9ms file={cache_name(A)}",
        f"kv hit text tokens=40 text=40 quant=2 key=token-text load=9ms file={cache_name(A)}",
        f"kv skipped tokens=40 reason=cold key=token-text size={size} file={cache_name(A)}: already stored",
    ]


def test_a_visible_key_is_not_what_the_tokens_render_to(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    session = cast(Session, SyntheticSession().become(A + B))
    key = Key(A + C, Extension.THINKING_VISIBLE)
    assert one.store.save(session, key, Reason.EVICT).stored
    assert one.ask(A + C + B) == A + B
    assert "key=thinking-visible" in one.lines("kv hit")[0]
    one.store.close()


def test_too_few_tokens(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    assert one.save(A[:16]).stored
    assert one.save(A[:15]).why == "fewer than 16 tokens"
    assert stored_texts(tmp_path) == {A[:16]}
    one.store.close()


def test_a_disk_that_is_almost_full(tmp_path: Path) -> None:
    left = [saver_module.DISK_RESERVE_BYTES + 1000]
    one = OpenStore(tmp_path, free=lambda directory: left[0])
    saved = one.save(A)
    assert not saved.stored
    assert saved.why.startswith("the disk is almost full")
    left[0] += 1 << 20
    assert one.save(A).stored
    one.store.close()


def test_a_disk_that_is_full_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*parts: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    one = OpenStore(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(saver_module, "write_cache_file", no_space)
        assert one.save(A).stored
    assert one.lines("kv store failed") == [f"kv store failed file={cache_name(A)}: No space left on device"]
    assert one.ask(A) == b""
    assert one.save(A).bytes > 0, "the failed write is not taken for one that is still to come"
    assert one.ask(A) == A
    one.store.close()


def test_a_session_that_breaks_while_it_is_saved(tmp_path: Path) -> None:
    class Broken(SyntheticSession):
        def save(self, file: object) -> int:
            raise EngineFault("out of memory")

    one = OpenStore(tmp_path)
    with pytest.raises(EngineFault):
        one.store.save(cast(Session, Broken().become(A)), Key(A), Reason.COLD)
    assert one.save(A).stored
    assert one.store._saver.writer.reserve(2 << 30, wait=False), "its bytes are free again"
    one.store.close()


def test_offers_need_no_session(tmp_path: Path) -> None:
    one = OpenStore(tmp_path, budget_bytes=1 << 20)
    offer = one.store.offer
    assert offer(Key(A), Reason.COLD, tokens=40, context=512, payload_bytes=1000) is None
    refusal = offer(Key(A), Reason.COLD, tokens=40, context=512, payload_bytes=1 << 20)
    assert refusal is not None
    assert refusal.why.endswith("do not fit the budget")
    one.save(A)
    refusal = offer(Key(A), Reason.COLD, tokens=40, context=512, payload_bytes=1000)
    assert refusal is not None
    assert refusal.already_stored
    assert one.lines("kv skipped") == []
    one.store.close()


def test_a_write_under_way_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    write = saver_module.write_cache_file

    def held(*parts: object, **options: object) -> object:
        assert gate.wait(10)
        return write(*parts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(saver_module, "write_cache_file", held)
    one = OpenStore(tmp_path)
    one.save(A + B, wait=False)
    assert not one.store.find(C, 512), "what is no beginning is not waited for"
    writer = one.store._saver.writer
    wait_for = writer.wait_for

    def open_and_wait(job: Job) -> None:
        gate.set()
        wait_for(job)

    monkeypatch.setattr(writer, "wait_for", open_and_wait)
    assert one.ask(A + B + C) == A + B
    one.store.close()


def test_a_write_that_ends_during_the_search_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    write = saver_module.write_cache_file

    def held(*parts: object, **options: object) -> object:
        assert gate.wait(10)
        return write(*parts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(saver_module, "write_cache_file", held)
    one = OpenStore(tmp_path)
    one.save(A + B, wait=False)
    look = one.store._shelf.prefixes_of

    def look_and_let_it_end(rendered: bytes) -> list[CacheFile]:
        found = look(rendered)
        gate.set()
        one.store.flush()
        return found

    monkeypatch.setattr(one.store._shelf, "prefixes_of", look_and_let_it_end)
    assert one.ask(A + B + C) == A + B
    one.store.close()


def test_without_memory_only_the_save_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_left(self: object, content: object) -> NoReturn:
        raise MemoryError

    one = OpenStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(PayloadBuffer, "write", nothing_left)
        assert not one.save(A).stored
    assert one.lines("kv skipped")[0].endswith(": there is no memory for a copy of it")
    assert one.store._saver.writer._reserved == 0
    assert one.save(A).stored
    one.store.close()


def test_closing_finishes_the_writes(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    for text in (A, B, C):
        one.save(text, wait=False)
    one.store.close()
    assert stored_texts(tmp_path) == {A, B, C}


def test_a_model_that_no_header_can_name(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="3 quant bits"):
        OpenStore(tmp_path, model=replace(MODEL, quant_bits=3))
    assert not list(tmp_path.iterdir())
