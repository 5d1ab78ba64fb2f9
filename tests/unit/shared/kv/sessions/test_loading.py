"""Loading a saved conversation into a live session: what must fit, and what damage does."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from shared.errors import ContextFullError
from shared.kv.files.checksum import sidecar_path
from shared.kv.sessions.capture import copy_state
from shared.kv.sessions.stored_session import UnusableSession
from shared.scripted.vocabulary import tokenizer
from tests.support.saved_sessions import FLASH, folder_in, put_session, save
from tests.support.scripts import scripted, turn

TEXT = "<｜begin▁of▁sentence｜><｜User｜>some words<｜Assistant｜></think>"
# Where the last token that is a letter stands in a saved state, from its end.
LAST_LETTER = -12


@pytest.fixture
def engine():
    return scripted(turn(*"abcdef"), prefill_chunk=64)


def live(engine, context=2000, text=TEXT):
    session = engine.open_session(context)
    session.sync(tokenizer().encode_rendered(text))
    return session


def test_a_session_goes_on_where_it_was_saved(engine, tmp_path):
    folder, before = folder_in(tmp_path), live(engine)
    stored = save(folder, "words", session=before)
    after = engine.open_session(4000)
    assert folder.load(stored, after) == before.tokens
    assert after.logits().tobytes() == before.logits().tobytes()
    assert after.snapshot() == before.snapshot()


def test_another_session_is_replaced_whole(engine, tmp_path):
    folder, saved, other = folder_in(tmp_path), live(engine), live(engine, text=TEXT + "much more of it")
    stored = save(folder, "words", session=saved)
    folder.load(stored, other)
    assert other.tokens == saved.tokens


def test_a_smaller_context_is_told_which_one_would_do(engine, tmp_path):
    folder = folder_in(tmp_path)
    stored = save(folder, "words", session=live(engine, context=1234))
    other = live(engine, context=1000)
    tokens = other.tokens
    with pytest.raises(
        UnusableSession,
        match=f"{stored.short_id} needs a context of 1234 tokens and this one has 1000: start",
    ):
        folder.load(stored, other)
    assert other.tokens == tokens


def test_a_full_context_needs_one_more(engine, tmp_path):
    folder, session = folder_in(tmp_path), live(engine, context=2000)
    stored = save(folder, "words", session=session)
    tokens = session.position
    full = replace(stored, file=replace(stored.file, header=replace(stored.file.header, context=tokens)))
    with pytest.raises(UnusableSession, match=f"needs a context of {tokens + 1} tokens"):
        folder.load(full, engine.open_session(tokens))


def test_other_weights_are_refused_before_the_state_is_touched(engine, tmp_path):
    stored = save(folder_in(tmp_path), "words", session=live(engine))
    other = live(engine)
    tokens = other.tokens
    with pytest.raises(UnusableSession, match=r"saved with 2-bit weights and these have 4: .*/strip"):
        folder_in(tmp_path, model=replace(FLASH, quant_bits=4)).load(stored, other)
    assert other.tokens == tokens


def test_a_name_that_does_not_fit_leaves_the_state_untouched(engine, tmp_path):
    folder = folder_in(tmp_path)
    path = save(folder, "words", session=live(engine)).file.path
    renamed = path.rename(tmp_path / ("ab" * 20 + ".kv"))
    other = live(engine)
    with pytest.raises(UnusableSession, match="its name does not fit"):
        folder.load(folder.find(renamed.stem), other)
    assert other.position > 0


def damage(stored, offset):
    content = bytearray(stored.file.path.read_bytes())
    before = stored.file.path.stat()
    content[offset] ^= 1
    stored.file.path.write_bytes(content)
    # A failing disk changes no times.
    os.utime(stored.file.path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("part", ["text", "state"])
def test_one_flipped_bit_is_noticed_and_invalidates(engine, tmp_path, part):
    folder = folder_in(tmp_path)
    stored = save(folder, "words", session=live(engine))
    damage(stored, 60 if part == "text" else stored.file.trailer_at + LAST_LETTER)
    other = live(engine)
    with pytest.raises(UnusableSession, match=r"is damaged: its checksum is wrong; /strip .* keeps its text"):
        folder.load(stored, other)
    assert other.position == 0
    assert stored.file.path.exists()


def test_a_checksum_older_than_the_file_says_nothing(engine, tmp_path):
    folder = folder_in(tmp_path)
    stored = save(folder, "words", session=live(engine))
    damage(stored, stored.file.trailer_at + LAST_LETTER)
    checked_at = sidecar_path(stored.file.path).stat().st_mtime_ns
    os.utime(stored.file.path, ns=(checked_at + 1, checked_at + 1))
    assert folder.load(stored, live(engine))


def test_a_state_that_does_not_have_the_tokens_of_its_header(engine, tmp_path):
    session = live(engine)
    payload = b"".join(copy_state(session))
    path = put_session(tmp_path, b"words", TEXT.encode(), payload, tokens=session.position + 1, context=2000)
    folder = folder_in(tmp_path)
    with pytest.raises(UnusableSession, match=f"its header says {session.position + 1} tokens"):
        folder.load(folder.find(path.stem), session)
    assert session.position == 0


def test_a_state_of_another_kind_is_refused(engine, tmp_path):
    path = put_session(tmp_path, b"words", TEXT.encode(), b"DSV4" + bytes(200))
    folder = folder_in(tmp_path)
    with pytest.raises(UnusableSession, match="cannot be loaded: "):
        folder.load(folder.find(path.stem), engine.open_session(3000))


def test_a_session_that_vanished(engine, tmp_path):
    folder = folder_in(tmp_path)
    stored = save(folder, "words", session=live(engine))
    folder.delete(stored)
    with pytest.raises(UnusableSession, match="is not there any more"):
        folder.load(stored, live(engine))


def test_the_state_copied_is_not_the_session_that_goes_on(engine, tmp_path):
    session = live(engine)
    before, snapshot = copy_state(session), session.snapshot()
    session.submit(65)
    assert b"".join(before) == snapshot != session.snapshot()
    with pytest.raises(ContextFullError):
        engine.open_session(4).sync(range(9))
