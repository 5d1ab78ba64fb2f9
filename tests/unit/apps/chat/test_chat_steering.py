"""`/steer`, and that no state of one steering serves another: live, saved, or of the system prompt."""

import numpy as np
import pytest

from apps.chat.settings import NEWEST
from shared.kv.files.cache_file import read_cache_file
from tests.support.chats import Chat
from tests.support.golden import tiny_q2
from tests.support.scripts import turn
from tests.support.steering import steering_of

pytest.importorskip("mlx.core")


@pytest.fixture(scope="module")
def loaded():
    from ds4mlx.engine import load

    return load(tiny_q2())


@pytest.fixture
def engine(loaded):
    loaded.steer(steering_of(loaded.shape, 0, 1.5))
    return loaded


@pytest.fixture
def chat(engine, tmp_path):
    opened = []

    def open_chat(**fields):
        given = {"context": 2048, "max_tokens": 3, "folder": tmp_path / "sessions", **fields}
        opened.append(Chat(engine=engine, **given))
        opened[-1].run("/nothink")
        return opened[-1]

    yield open_chat
    for each in opened:
        each.close()


def _logits(engine, tokens):
    session = engine.open_session(2048)
    session.sync(tokens)
    return session.logits()


def _saved(tmp_path):
    (path,) = (tmp_path / "sessions").glob("*.kv")
    return read_cache_file(path)


def test_it_shows_and_sets_the_scale(chat, engine):
    opened = chat(autosave=False)
    assert opened.run("/steer") == "steering: ffn 1.5, attn 0\n"
    assert opened.run("/steer -0.25") == "steering: ffn -0.25, attn 0\n"
    assert engine.steering.feed_forward == -0.25
    for wrong, reason in (
        ("more", "/steer needs a number, for example /steer 0.5 (0 is off)\n"),
        ("100.5", "a steering scale of 100.5 is not from -100 to 100\n"),
        ("nan", "a steering scale of nan is not from -100 to 100\n"),
    ):
        assert opened.run(f"/steer {wrong}") == reason
    assert engine.steering.feed_forward == -0.25


def test_without_directions_it_says_what_is_missing(tmp_path):
    opened = Chat(turn("Hm."))
    assert opened.run("/steer") == "no steering: start with --dir-steering-file FILE.f32\n"
    assert opened.run("/steer 1") == "/steer needs a direction: start with --dir-steering-file FILE.f32\n"
    opened.close()


def test_another_scale_computes_the_conversation_anew(chat, engine):
    """Every time the state is what the whole conversation gives under the present scale."""
    opened = chat(autosave=False)
    opened.run("Hello there")
    for scale in ("0", "-2"):
        before, reused = len(opened.conversation), opened.conversation.total.reused
        assert f"the next turn prefills all {before} tokens" in opened.run(f"/steer {scale}")
        assert opened.conversation.session.position == 0
        opened.run("more")
        assert opened.conversation.total.reused == reused
        expected = _logits(engine, opened.conversation.session.tokens)
        np.testing.assert_allclose(opened.conversation.session.logits(), expected, atol=2e-3)
    # The scale that it is: nothing is thrown away.
    position = opened.conversation.session.position
    assert opened.run("/steer -2.0") == "steering: ffn -2, attn 0\n"
    assert opened.conversation.session.position == position


@pytest.mark.long
def test_a_conversation_under_steering_is_saved_without_its_state(chat, engine, tmp_path):
    opened = chat()
    opened.run("Hello there")
    assert "(text only: it is steered)" in opened.run("/save")
    assert _saved(tmp_path).header.payload_bytes == 0
    opened.run("/steer 0")
    again = chat(resume=NEWEST)
    assert again.conversation.tokens == opened.conversation.tokens
    expected = _logits(engine, again.conversation.session.tokens)
    np.testing.assert_allclose(again.conversation.session.logits(), expected, atol=2e-3)


def test_a_saved_state_does_not_serve_steering(chat, engine, tmp_path):
    opened = chat()
    opened.run("/steer 0", "Hello there", "/save")
    assert _saved(tmp_path).header.payload_bytes > 0
    opened.run("/steer 1")
    again = chat(resume=NEWEST)
    assert "from=text" in again.err.text
    assert again.conversation.tokens == opened.conversation.tokens
    session = again.conversation.session
    assert np.abs(session.logits() - _logits(engine, session.tokens)).max() < 2e-3
    engine.steer(engine.steering.with_feed_forward(0.0))
    assert "from=state" in chat(resume=NEWEST).err.text


@pytest.mark.long
def test_nor_does_the_state_of_a_system_prompt(chat, tmp_path, monkeypatch):
    monkeypatch.setattr("apps.chat.system_state.LEAST_TOKENS", 4)
    system, file = "Be brief, please.", tmp_path / "sessions" / "sysprompt.kv"
    opened = chat(system=system)
    opened.run("one")
    assert not file.exists()
    opened.run("/steer 0", "/new", "two")
    opened.close()
    assert file.exists()
    plain = chat(system=system)
    assert "taken from disk" in plain.run("three")
    assert "taken from disk" not in plain.run("/steer 1", "/new", "four")


@pytest.mark.long
def test_text_that_only_a_state_can_tell_apart_is_not_lost_silently(chat, tmp_path):
    opened = chat()
    opened.run("What is <｜User｜>?")
    assert "not saved: some text reads like a control mark" in opened.run("/save")
    assert "/quit again drops it" in opened.leave()
    opened = chat()
    opened.run("What is <｜User｜>?", "/steer 0", "/save")
    assert _saved(tmp_path).header.payload_bytes > 0
