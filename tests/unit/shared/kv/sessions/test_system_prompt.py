"""The saved state of a system prompt: used only where it fits to the byte, and replaced where it does not."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from shared.kv.files.checksum import sidecar_path
from shared.kv.sessions.system_prompt import SystemPromptFile
from shared.scripted.vocabulary import tokenizer
from tests.support.cache_builder import CREATED
from tests.support.clock import FakeClock
from tests.support.kv_checker import check_cache_bytes
from tests.support.saved_sessions import FLASH, folder_in
from tests.support.scripts import scripted, turn

TEXT = "<｜begin▁of▁sentence｜>Be brief.".encode()
TOKENS = tokenizer().encode_rendered(TEXT)


@pytest.fixture
def engine():
    return scripted(turn("A"))


@pytest.fixture
def file(engine, tmp_path):
    """The file, holding the state of TEXT."""
    file = SystemPromptFile(tmp_path, FLASH, clock=FakeClock(CREATED))
    session = engine.open_session(2000)
    session.sync(TOKENS)
    file.capture(session, TEXT).write(tmp_path)
    return file


def test_the_state_comes_back(engine, file):
    session = engine.open_session(2000)
    assert file.load(session, TEXT, TOKENS)
    assert session.tokens == TOKENS


def test_the_file_is_one_of_the_format_and_no_session(file, tmp_path):
    content = file.path.read_bytes()
    assert file.path.name == "sysprompt.kv"
    assert [p for p in check_cache_bytes(content, file.path.name) if "name" not in p] == []
    assert content[:8] == bytes.fromhex("4b56430102050000")
    assert content[24:40] == CREATED.to_bytes(8, "little") * 2
    assert folder_in(tmp_path).sessions() == []


@pytest.mark.parametrize("text", [b"", TEXT[:-1] + b"!", TEXT + b"!", b"x" * len(TEXT)])
def test_another_text_is_another_prompt(engine, file, text):
    assert not file.load(engine.open_session(2000), text, tokenizer().encode_rendered(text))


def test_a_text_that_was_changed_in_the_file_is_another_prompt(engine, file):
    sidecar_path(file.path).unlink()
    file.path.write_bytes(file.path.read_bytes().replace(b"Be brief", b"Be grief"))
    assert not file.load(engine.open_session(2000), TEXT, TOKENS)


def test_the_same_text_in_other_tokens_is_another_prompt(engine, file):
    session = engine.open_session(2000)
    # The mark as plain text has more tokens; as many others stand for the same length here.
    others = [*TOKENS[:-1], TOKENS[-1] + 1]
    assert not file.load(session, TEXT, others)
    assert session.position == 0


@pytest.mark.parametrize("model", [replace(FLASH, model_id=1), replace(FLASH, quant_bits=4)])
def test_another_model_cannot_use_it(engine, file, tmp_path, model):
    assert not SystemPromptFile(tmp_path, model).load(engine.open_session(2000), TEXT, TOKENS)


def test_a_smaller_context_cannot_use_it(engine, file):
    assert not file.load(engine.open_session(1999), TEXT, TOKENS)


def test_damage_is_as_good_as_no_file(engine, file, tmp_path):
    content = bytearray(file.path.read_bytes())
    content[-1] ^= 1
    file.path.write_bytes(content)
    later = file.path.stat().st_mtime_ns + 1
    os.utime(sidecar_path(file.path), ns=(later, later))
    session = engine.open_session(2000)
    assert not file.load(session, TEXT, TOKENS)
    assert session.position == 0
    for broken in (b"", b"KVC", bytes(content[:-1])):
        file.path.write_bytes(broken)
        assert not file.load(session, TEXT, TOKENS)
    file.path.unlink()
    assert not file.load(session, TEXT, TOKENS)
