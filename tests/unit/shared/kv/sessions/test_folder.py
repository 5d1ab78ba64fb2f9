"""Folders of saved conversations: what is listed, found, written, stripped and deleted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kv.files.checksum import sidecar_path
from shared.kv.files.header import Extension, Reason
from shared.kv.sessions.capture import NotSaved
from shared.kv.sessions.folder import NoSuchSession, Origin
from shared.kv.sessions.stored_session import UnusableSession
from shared.scripted.vocabulary import tokenizer
from tests.support import kv_vectors
from tests.support.cache_builder import CREATED, zero_payload
from tests.support.clock import FakeClock
from tests.support.kv_checker import check_cache_bytes
from tests.support.saved_sessions import FLASH, folder_in, put_session, save
from tests.support.scripts import scripted, turn


def titles(sessions):
    return [stored.title.decode() for stored in sessions]


def test_the_published_stripped_session_is_listed_and_read(tmp_path):
    vector = kv_vectors.STRIPPED
    (tmp_path / vector.name).write_bytes(vector.content)
    folder = folder_in(tmp_path)
    (stored,) = folder.sessions()
    assert (stored.title, stored.stripped, stored.legacy) == (b"Hello world", True, False)
    assert (stored.short_id, stored.file.header.tokens) == ("fe8c5b68", 3)
    assert stored.created_at == CREATED
    assert folder.find("FE8C") == stored
    assert folder.read(stored) == "<｜User｜>Hello  world".encode()


def test_a_save_is_that_published_file(tmp_path):
    vector = kv_vectors.STRIPPED
    folder = folder_in(tmp_path, clock=FakeClock(CREATED + 300))
    origin = Origin(b"Hello world", CREATED)
    text = "<｜User｜>Hello  world".encode()
    folder.write(folder.capture(origin, text, tokens=3, context=32768))
    assert (tmp_path / vector.name).read_bytes() == vector.content
    assert (tmp_path / vector.name).stat().st_mode & 0o777 == 0o600


def test_the_folder_is_made_at_the_first_save_and_only_then(tmp_path):
    path = tmp_path / "a" / "b"
    folder = folder_in(path)
    folder.clean()
    assert folder.sessions() == []
    with pytest.raises(NoSuchSession, match=r"there is no saved session of this model in .*/b$"):
        folder.newest()
    assert not path.exists()
    save(folder, "one")
    assert path.stat().st_mode & 0o777 == 0o700


def test_the_last_used_comes_first_and_equals_go_by_name(tmp_path):
    clock = FakeClock(CREATED)
    folder = folder_in(tmp_path, clock=clock)
    for title, used in (("old", 10), ("new", 30), ("b", 20), ("a", 20)):
        clock.now = CREATED + used
        save(folder, title)
    equals = sorted(("a", "b"), key=lambda title: Origin(title.encode(), CREATED).name)
    assert titles(folder.sessions()) == ["new", *equals, "old"]
    assert folder.newest().title == b"new"


def test_only_conversations_of_this_model_are_listed(tmp_path):
    put_session(tmp_path, b"mine", b"x")
    put_session(tmp_path, b"pro", b"x", model_id=1)
    put_session(tmp_path, b"other quant", b"x", payload=b"12345")
    put_session(tmp_path, b"newer", b"x", abi=3)
    for reason in range(1, 6):
        put_session(tmp_path, None, b"prefix %d" % reason, reason=reason)
    put_session(tmp_path, b"cut", b"x").write_bytes(b"KVC")
    (tmp_path / ("0" * 40 + ".kv")).write_bytes(b"")
    (tmp_path / ("1" * 40 + ".kv")).mkdir()
    (tmp_path / "sysprompt.kv").write_bytes(b"")
    assert sorted(titles(folder_in(tmp_path).sessions())) == ["mine", "other quant"]
    assert titles(folder_in(tmp_path, model=replace(FLASH, model_id=1)).sessions()) == ["pro"]


def test_other_folders_are_read_and_the_later_save_of_one_session_counts(tmp_path):
    clock = FakeClock(CREATED)
    theirs = folder_in(tmp_path / "theirs", clock=clock)
    save(theirs, "both", "old")
    save(theirs, "theirs")
    clock.now += 5
    folder = folder_in(tmp_path / "own", others=[tmp_path / "theirs", tmp_path / "none"], clock=clock)
    save(folder, "both", "new")
    by_title = {stored.title: stored for stored in folder.sessions()}
    assert {title: stored.writable for title, stored in by_title.items()} == {b"both": True, b"theirs": False}
    assert folder.read(folder.find(by_title[b"both"].identity)) == b"new"
    for change in (folder.delete, lambda stored: folder.strip(stored, tokenizer())):
        with pytest.raises(UnusableSession, match=r"only read: start with --kv-disk-dir .*/theirs$"):
            change(by_title[b"theirs"])


def test_a_folder_named_twice_is_ours(tmp_path):
    save(folder_in(tmp_path), "one")
    (tmp_path / "link").symlink_to(tmp_path)
    (stored,) = folder_in(tmp_path, others=[tmp_path / "link"]).sessions()
    assert stored.writable


def test_a_beginning_must_fit_one_session(tmp_path):
    folder = folder_in(tmp_path)
    stored = [save(folder, str(number)) for number in range(17)]
    assert all(folder.find(each.identity) == each for each in stored)
    assert folder.find(stored[0].identity.upper()[:12]).title == b"0"
    common = next(d for d in "0123456789abcdef" if sum(s.identity.startswith(d) for s in stored) > 1)
    with pytest.raises(NoSuchSession, match=rf"\d+ sessions start with {common}: {common}.*give more digits"):
        folder.find(common)
    with pytest.raises(NoSuchSession, match=r"no session starts with 00000000: see /list"):
        folder.find("00000000")


@pytest.mark.parametrize("prefix", ["", "xyz", "-1", "a" * 41, " a", "../a"])
def test_what_is_no_beginning_of_an_id(tmp_path, prefix):
    with pytest.raises(NoSuchSession, match="is no session id"):
        folder_in(tmp_path).find(prefix)


def test_a_damaged_file_is_named_when_it_is_asked_for(tmp_path):
    path = put_session(tmp_path, b"title", b"some text", payload=b"12345")
    whole = path.read_bytes()
    for content, complaint in ((whole[:60], "cut off"), (whole[:-1], "title is missing or cut off")):
        path.write_bytes(content)
        with pytest.raises(UnusableSession, match=complaint):
            folder_in(tmp_path).find(path.stem[:6])


def test_a_renamed_session_is_refused(tmp_path):
    path = put_session(tmp_path, b"title", b"some text")
    renamed = path.rename(tmp_path / ("ab" * 20 + ".kv"))
    folder = folder_in(tmp_path)
    with pytest.raises(UnusableSession, match="its name does not fit its title and date"):
        folder.read(folder.find(renamed.stem))


def test_a_session_of_an_older_writer_counts_as_stripped(tmp_path):
    put_session(tmp_path, b"title", b"some text", payload=b"12345", abi=0)
    folder = folder_in(tmp_path)
    (stored,) = folder.sessions()
    assert (stored.stripped, stored.title, folder.read(stored)) == (True, b"title", b"some text")
    stripped = folder.strip(stored, tokenizer())
    assert (stripped.file.header.payload_abi, stripped.file.header.payload_bytes) == (2, 0)
    assert folder.read(stripped) == b"some text"


def test_a_session_without_a_title_is_named_after_its_text_until_it_is_saved(tmp_path):
    text = "<｜begin▁of▁sentence｜><｜User｜>first  words<｜Assistant｜>".encode()
    old = put_session(tmp_path, None, text)
    folder = folder_in(tmp_path)
    legacy = folder.find(old.stem)
    assert (legacy.title, legacy.legacy) == (b"first words", True)
    assert folder.read(legacy) == text
    capture = folder.capture(Origin(legacy.title, legacy.created_at), text, tokens=3, context=2048)
    new = folder.write(capture, instead_of=legacy)
    assert (new.legacy, new.title, new.identity == legacy.identity) == (False, b"first words", False)
    assert [stored.identity for stored in folder.sessions()] == [new.identity]
    assert not old.exists()


def test_a_legacy_session_of_another_folder_stays_when_it_is_saved_here(tmp_path):
    old = put_session(tmp_path / "theirs", None, b"text")
    folder = folder_in(tmp_path / "own", others=[tmp_path / "theirs"])
    legacy = folder.find(old.stem)
    folder.write(folder.capture(Origin(b"t", 1), b"text", tokens=3, context=9), instead_of=legacy)
    assert old.exists()


def test_stripping_a_legacy_session_leaves_it_legacy(tmp_path):
    old = put_session(tmp_path, None, b"text", payload=b"12345", hits=7)
    folder = folder_in(tmp_path, clock=FakeClock(CREATED + 60))
    stripped = folder.strip(folder.find(old.stem), tokenizer())
    assert check_cache_bytes(old.read_bytes(), old.name) == []
    header = stripped.file.header
    assert (stripped.legacy, stripped.identity, header.extensions) == (True, old.stem, Extension(0))
    assert (header.hits, header.tokens, header.last_used, header.created_at) == (7, 4, CREATED + 60, CREATED)


def test_stripping_keeps_all_but_the_state(tmp_path):
    text = "<｜User｜>Hello  world".encode()
    path = put_session(tmp_path, b"Hello world", text, payload=b"12345", hits=3, context=32768)
    folder = folder_in(tmp_path, clock=FakeClock(CREATED + 300))
    sidecar_path(path).write_text("stale")
    stripped = folder.strip(folder.find("fe8c"), tokenizer())
    tokens = len(tokenizer().encode_rendered(text))
    assert stripped.stripped
    expected = bytearray(kv_vectors.STRIPPED.content)
    expected[8], expected[12] = tokens, 3
    assert path.read_bytes() == bytes(expected)


def test_text_that_reads_like_a_control_mark_is_not_stripped_of_its_tokens(tmp_path):
    specials = tokenizer().specials
    # The payload says that the second mark is text: eight tokens, no control token among its ids.
    text = b"<think>a"
    payload = zero_payload(8, vocabulary=300)
    path = put_session(tmp_path, b"title", text, payload, tokens=8)
    folder = folder_in(tmp_path)
    with pytest.raises(UnusableSession, match=r"text that reads like a control mark"):
        folder.strip(folder.find(path.stem), tokenizer())
    assert path.read_bytes().find(payload) > 0
    # The same state with plain text loses nothing.
    plain = put_session(tmp_path, b"plain", b"thinking", payload, tokens=8)
    assert folder.strip(folder.find(plain.stem), tokenizer()).file.header.tokens == 8
    assert specials.think > 8


def test_deleting_takes_the_checksum_along(tmp_path):
    folder = folder_in(tmp_path)
    stored = save(folder, "one")
    assert sidecar_path(stored.file.path).exists()
    folder.delete(stored)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotSaved, match=r"cannot delete .*: No such file or directory"):
        folder.delete(stored)


def test_a_session_that_vanished_is_one_line(tmp_path):
    folder = folder_in(tmp_path)
    stored = save(folder, "one")
    stored.file.path.unlink()
    with pytest.raises(NoSuchSession, match="is not there any more"):
        folder.read(stored)


def test_a_failed_save_leaves_the_earlier_one(tmp_path, monkeypatch):
    folder = folder_in(tmp_path)
    save(folder, "one", "first")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotSaved, match=r"cannot save in .*: No space left on device"):
        save(folder, "one", "second")
    monkeypatch.undo()
    assert folder.read(folder.newest()) == b"first"
    assert not [path for path in tmp_path.iterdir() if ".tmp." in path.name]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotSaved, match=r"cannot save in .*file/sessions: Not a directory"):
        save(folder_in(tmp_path / "file" / "sessions"), "one")


def test_what_a_dead_writer_left_is_cleaned(tmp_path):
    folder = folder_in(tmp_path)
    stored = save(folder, "one")
    # No process has the greatest id.
    leftover = tmp_path / f"{stored.file.path.name}.tmp.{2**31 - 1}"
    leftover.write_bytes(b"half")
    folder.clean()
    assert not leftover.exists()
    assert folder.sessions() == [stored]


def test_a_saved_state_makes_a_file_of_the_format(tmp_path):
    engine = scripted(turn("A"))
    session = engine.open_session(2000)
    session.sync(tokenizer().encode_rendered("<｜begin▁of▁sentence｜>words"))
    stored = save(folder_in(tmp_path, clock=FakeClock(CREATED + 9)), "words", session=session)
    path, header = stored.file.path, stored.file.header
    assert check_cache_bytes(path.read_bytes(), path.name) == []
    assert (header.reason, header.extensions) == (Reason.AGENT_SESSION, Extension.TITLE)
    assert (header.created_at, header.last_used, header.hits) == (CREATED, CREATED + 9, 0)
    assert (header.tokens, header.context, header.payload_bytes) == (6, 2000, session.payload_bytes())
    assert not stored.stripped


@settings(max_examples=25)
@given(
    title=st.binary(max_size=60),
    text=st.binary(max_size=200),
    created=st.integers(0, 2**64 - 1),
    tokens=st.integers(1, 2**32 - 1),
    payload=st.lists(st.binary(max_size=30), max_size=3),
)
def test_whatever_is_written_is_read_again(tmp_path_factory, title, text, created, tokens, payload):
    directory: Path = tmp_path_factory.mktemp("sessions")
    folder = folder_in(directory)
    origin, context = Origin(title, created), 2**32 - 1
    capture = folder.capture(origin, text, tokens=tokens, context=context, payload=tuple(payload))
    stored = folder.write(capture)
    path = stored.file.path
    assert check_cache_bytes(path.read_bytes(), path.name) == []
    assert (stored.title, folder.read(stored), stored.created_at) == (title, text, created)
    assert folder.find(path.stem) == stored
    assert stored.stripped == (not b"".join(payload))
