"""What a chat saves by itself, when, and that turns are never lost unasked."""

from __future__ import annotations

import threading

import pytest

from apps.chat.settings import NEWEST
from shared.errors import EngineFault
from tests.support.saved_sessions import saved_files, saved_ids
from tests.support.scripts import turn


def test_leaving_saves_and_resume_goes_on(chat, tmp_path):
    first = chat()
    said = first.leave("one", "two")
    assert "saving the conversation (" in said
    (name,) = saved_files(tmp_path)
    assert f"session saved id={name[:8]} tokens={len(first.conversation)} size=0.0 MiB" in said
    again = chat(resume=NEWEST)
    assert again.conversation.tokens == first.conversation.tokens
    assert again.conversation.turns == 2
    assert f"session loaded id={name[:8]} from=state tokens={len(first.conversation)}" in again.err.text
    again.run("three")
    # All that was computed before is still there.
    assert again.conversation.total.reused == len(first.conversation)
    assert again.conversation.tokens[: len(first.conversation)] == first.conversation.tokens
    again.leave()
    assert saved_files(tmp_path) == [name]


def test_nothing_is_saved_without_a_turn(chat, tmp_path):
    assert "saving" not in chat().leave("/nothink", "/stats", "/new")
    assert chat().run("/save") == "there is nothing to save yet\n"
    assert saved_files(tmp_path) == []
    chat().leave("one")
    before = (tmp_path / "sessions" / saved_files(tmp_path)[0]).read_bytes()
    resumed = chat(resume=NEWEST)
    assert "saving" not in resumed.leave("/list")
    assert (tmp_path / "sessions" / saved_files(tmp_path)[0]).read_bytes() == before


def test_a_turn_that_failed_is_no_reason_to_save(chat, tmp_path):
    failing = turn("abc", fail={"at": "decode", "after": 0})
    assert "saving" not in chat(failing).leave("one")
    assert saved_files(tmp_path) == []


def test_without_autosave_turns_are_not_dropped_unasked(chat, tmp_path):
    one = chat(autosave=False)
    one.run("one")
    assert one.run("/new") == "this conversation is not saved: /save keeps it; /new again drops it\n"
    assert one.conversation.turns == 1
    one.run("two")
    # Another turn is another thing to lose.
    assert "again drops it" in one.run("/new")
    assert one.run("/new") == "new conversation\n"
    one.run("three", "/save", "four")
    one.sessions.idle()
    said = one.leave("/quit", "/quit")
    assert said == "this conversation is not saved: /save keeps it; /quit again drops it\n"
    assert len(saved_files(tmp_path)) == 1


def test_a_full_disk_keeps_the_user_in_the_chat_once(chat, tmp_path):
    (tmp_path / "sessions").write_bytes(b"a file where the folder should be")
    one = chat()
    said = one.leave("one", "/quit", "two", "/quit", "/quit", "never read")
    assert said.count("; /quit again drops it\n") == 2
    assert "cannot save in " in said
    assert (one.conversation.turns, one.lines) == (2, ["never read"])


def test_when_idle_it_is_saved_without_a_word(chat, tmp_path):
    one = chat()
    one.run("one")
    said = one.err.text
    one.sessions.idle()
    assert one.err.text == said
    one.run("/list")
    assert len(saved_files(tmp_path)) == 1
    before = (tmp_path / "sessions" / saved_files(tmp_path)[0]).read_bytes()
    one.sessions.idle()
    one.run("/list")
    assert (tmp_path / "sessions" / saved_files(tmp_path)[0]).read_bytes() == before
    assert "saving" not in one.leave()


def test_an_idle_save_is_written_by_another_thread_from_a_copy(chat, tmp_path, monkeypatch):
    from shared.kv.sessions import capture

    written_by = []
    write = capture.write_cache_file
    held = threading.Event()

    def hold(*arguments, **fields):
        assert held.wait(60)
        written_by.append(threading.current_thread())
        return write(*arguments, **fields)

    monkeypatch.setattr(capture, "write_cache_file", hold)
    one = chat()
    one.run("one")
    tokens = one.conversation.tokens
    one.sessions.idle()
    # The next turn does not wait for the write, and does not change what is written.
    one.run("two")
    assert written_by == []
    held.set()
    one.run("/list")
    assert [thread is threading.main_thread() for thread in written_by] == [False]
    assert chat(resume=NEWEST).conversation.tokens == tokens


def test_an_idle_save_that_fails_is_said_and_tried_again(chat, tmp_path):
    blocked = tmp_path / "sessions"
    blocked.write_bytes(b"")
    one = chat()
    one.run("one")
    one.sessions.idle()
    assert "cannot save in " in one.run("/list")
    blocked.unlink()
    assert "session saved id=" in one.leave()
    assert len(saved_files(tmp_path)) == 1


def test_idling_never_raises(chat, monkeypatch):
    one = chat()
    one.run("one")

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(one.conversation, "catch_up", broken)
    monkeypatch.setattr(one.conversation, "missing", broken)
    one.sessions.idle()
    assert one.conversation.unsaved


def test_a_signal_to_end_saves_first(chat, tmp_path):
    one = chat()
    with pytest.raises(SystemExit):
        one.leave("one", SystemExit(143))
    assert len(saved_files(tmp_path)) == 1
    again = chat(resume=NEWEST)
    assert again.conversation.turns == 1


def test_a_terminal_that_is_gone_is_a_reason_to_save(chat, tmp_path):
    one = chat()
    with pytest.raises(OSError, match="gone"):
        one.leave("one", OSError(5, "the terminal is gone"))
    assert len(saved_files(tmp_path)) == 1


def test_a_signal_in_the_middle_of_an_answer_saves_the_turns_before(chat, tmp_path, monkeypatch):
    one = chat()
    one.run("one")
    tokens = one.conversation.tokens

    def torn(*_):
        raise SystemExit(143)

    monkeypatch.setattr(one.conversation, "send", torn)
    with pytest.raises(SystemExit):
        one.leave("two")
    assert "(text only: its state is not there)" in one.err.text
    assert chat(resume=NEWEST).conversation.tokens == tokens


def test_a_state_that_was_lost_is_saved_as_text_when_leaving_and_computed_for_save(chat, tmp_path):
    one = chat(prefill_chunk=100)
    one.run("one " * 100)
    one.conversation.forget_state()
    assert "(text only: its state is not there)" in one.leave()
    again = chat(prefill_chunk=100)
    again.run("one " * 100)
    again.conversation.forget_state()
    said = again.run("/save")
    assert "text only" not in said
    assert "prefill" in said


def test_an_engine_that_fails_while_saving_costs_the_state_and_not_the_turns(chat, tmp_path, monkeypatch):
    one = chat()
    one.run("one")
    tokens = one.conversation.tokens

    def broken(*_, **__):
        raise EngineFault("the engine broke")

    with monkeypatch.context() as patch:
        patch.setattr(one.conversation, "catch_up", broken)
        # Asked for the state, it says why there is none; leaving, it keeps the text.
        assert one.run("/save") == "the engine broke\n"
        assert saved_files(tmp_path) == []
        assert "(text only: its state is not there)" in one.leave()
    assert chat(resume=NEWEST).conversation.tokens == tokens
    mark = chat()
    mark.run("what does <｜Assistant｜> mean?")
    monkeypatch.setattr(mark.conversation, "catch_up", broken)
    assert mark.run("/new").splitlines()[-1] == "the engine broke; /new again drops it"
    assert len(saved_files(tmp_path)) == 1
    assert mark.run("/new") == "new conversation\n"


def test_text_that_reads_like_a_control_mark_is_never_saved_as_text_only(chat, tmp_path):
    one = chat()
    one.run("what does <｜Assistant｜> mean? " * 20)
    tokens = one.conversation.tokens
    one.conversation.forget_state()
    said = one.run("/new")
    assert "text only" not in said
    (first,) = saved_ids(tmp_path)
    # The scripted state cannot be read by the stripper: it is the text that must not be trusted then.
    one.run(f"/switch {first}")
    assert one.conversation.tokens == tokens


def test_a_full_context_is_saved_and_taken_up(chat, tmp_path):
    one = chat(turn("</think>", *"x" * 3000), context=700, max_tokens=5000)
    one.run("one")
    assert len(one.conversation) == 700
    assert "session saved" in one.run("/save")
    again = chat(resume=NEWEST, context=700)
    assert again.conversation.tokens == one.conversation.tokens


def test_two_chats_on_one_session_lose_no_turn(chat, tmp_path):
    chat().leave("one")
    (shared,) = saved_files(tmp_path)
    left, right = chat(resume=NEWEST), chat(resume=NEWEST)
    left.leave("from the left")
    said = right.leave("from the right", "/save", "more from the right")
    assert said.count(f"session {shared[:8]} was changed by another program: it stays as it is") == 1
    assert len(saved_files(tmp_path)) == 2
    tokens = [chat(resume=name).conversation.tokens for name in saved_ids(tmp_path)]
    assert sorted(tokens) == sorted([left.conversation.tokens, right.conversation.tokens])


def test_two_chats_that_begin_alike_in_the_same_second_are_both_kept(chat, tmp_path):
    left, right = chat(), chat()
    left.run("hello")
    right.run("hello")
    right.conversation.began_at = left.conversation.began_at
    left.leave("from the left")
    assert "changed by another program" not in right.leave("from the right")
    tokens = [chat(resume=name).conversation.tokens for name in saved_ids(tmp_path)]
    assert sorted(tokens) == sorted([left.conversation.tokens, right.conversation.tokens])
