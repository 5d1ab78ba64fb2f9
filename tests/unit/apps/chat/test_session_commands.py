"""Saved conversations in the chat: what is saved when, what can be taken up again, what is never lost."""

from __future__ import annotations

import signal
import threading

import pytest

from apps.chat.settings import NEWEST
from shared.errors import EngineFault
from shared.kv.sessions.stored_session import UnusableSession
from shared.scripted.vocabulary import tokenizer
from tests.support import kv_vectors
from tests.support.chats import Chat
from tests.support.saved_sessions import put_session
from tests.support.scripts import turn

ANSWER = turn("Hm.", "</think>", "Yes.")


@pytest.fixture
def chat(tmp_path):
    """Opens chats that save in one folder."""
    opened = []

    def open_chat(*turns, **fields):
        opened.append(Chat(*(turns or [ANSWER] * 9), folder=tmp_path / "sessions", **fields))
        return opened[-1]

    yield open_chat
    for each in opened:
        each.close()


def files(tmp_path):
    folder = tmp_path / "sessions"
    return sorted(path.name for path in folder.glob("*.kv")) if folder.exists() else []


def ids(tmp_path):
    return [name[:8] for name in files(tmp_path)]


def test_leaving_saves_and_resume_goes_on(chat, tmp_path):
    first = chat()
    said = first.leave("one", "two")
    assert "saving the conversation (" in said
    (name,) = files(tmp_path)
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
    assert files(tmp_path) == [name]


def test_nothing_is_saved_without_a_turn(chat, tmp_path):
    assert "saving" not in chat().leave("/nothink", "/stats", "/new")
    assert chat().run("/save") == "there is nothing to save yet\n"
    assert files(tmp_path) == []
    chat().leave("one")
    before = (tmp_path / "sessions" / files(tmp_path)[0]).read_bytes()
    resumed = chat(resume=NEWEST)
    assert "saving" not in resumed.leave("/list")
    assert (tmp_path / "sessions" / files(tmp_path)[0]).read_bytes() == before


def test_a_turn_that_failed_is_no_reason_to_save(chat, tmp_path):
    failing = turn("abc", fail={"at": "decode", "after": 0})
    assert "saving" not in chat(failing).leave("one")
    assert files(tmp_path) == []


def test_a_session_keeps_its_name_over_all_saves(chat, tmp_path):
    one = chat()
    one.run("one", "/save")
    name = files(tmp_path)
    assert "is saved already" in one.run("/save")
    one.run("two", "/save")
    assert files(tmp_path) == name
    other = chat()
    other.leave("another first message")
    assert len(files(tmp_path)) == 2


def test_the_first_message_is_the_title(chat):
    one = chat()
    one.run("  a   first\nmessage ", "more", "/save")
    (line,) = one.run("/list").splitlines()
    assert line.startswith("* ")
    assert line.endswith("  a first message")
    assert f" {len(one.conversation)} tokens  0.0 MiB" in line


def test_new_saves_and_starts_an_empty_conversation(chat, tmp_path):
    one = chat()
    said = one.run("one", "/new")
    assert said.splitlines()[-1] == "new conversation"
    assert (len(files(tmp_path)), one.conversation.turns) == (1, 0)
    one.run("two", "/new")
    assert len(files(tmp_path)) == 2
    assert one.run("/new") == "new conversation\n"


def test_switching_saves_and_shows_the_last_three_turns(chat, tmp_path):
    one = chat()
    one.run("1", "2", "3", "4", "/new")
    (first,) = ids(tmp_path)
    one.run("other")
    said = one.run(f"/switch {first}")
    assert "session saved id=" in said
    shown = said[said.index("session loaded") :].splitlines()[1:]
    assert shown == ["> 2", "Yes.", "> 3", "Yes.", "> 4", "Yes."]
    assert one.conversation.turns == 4
    assert [line[:10] for line in one.run("/list").splitlines() if line[0] == "*"] == [f"* {first}"]
    assert one.run(f"/switch {first}") == f"session {first} is the one that you are in\n"
    (other,) = set(ids(tmp_path)) - {first}
    one.run("/switch " + other.upper()[:7])
    assert "other" in tokenizer().decode(one.conversation.tokens).decode()


def test_the_files_of_both_sessions_and_their_live_state_are_right_after_switching(chat, tmp_path):
    one = chat()
    one.run("first", "/new", "second")
    one.run("/switch " + ids(tmp_path)[0])
    one.run("more")
    tokens = one.conversation.tokens
    assert one.conversation.session.tokens == tokens[:-1]
    one.leave()
    assert chat(resume=NEWEST).conversation.tokens == tokens


@pytest.mark.parametrize("command", ["/switch", "/del", "/strip"])
def test_commands_need_an_id_that_exists(chat, command):
    one = chat()
    one.run("one")
    assert one.run(command) == f"{command} needs the first digits of a session's id: /list shows them\n"
    assert one.run(f"{command} abcd") == "no session starts with abcd: see /list\n"
    assert "is no session id" in one.run(f"{command} no hex")
    assert one.conversation.turns == 1


def test_list_takes_nothing_behind_it_and_an_empty_folder_is_said(chat):
    assert chat().run("/list") == "there are no saved sessions of this model yet\n"
    assert "takes nothing behind it" in chat().run("/list x")


def test_a_stripped_session_is_prefilled_and_goes_on(chat, tmp_path):
    one = chat()
    one.run("one", "two", "/new")
    (first,) = ids(tmp_path)
    size = (tmp_path / "sessions" / files(tmp_path)[0]).stat().st_size
    assert f"session {first} is stripped: 0.0 MiB less, its text stays\n" == one.run(f"/strip {first}")
    assert (tmp_path / "sessions" / files(tmp_path)[0]).stat().st_size < size
    assert "stripped" in one.run("/list")
    assert one.run(f"/strip {first}") == f"session {first} is stripped already\n"
    one = chat()
    said = one.run(f"/switch {first}")
    tokens = len(one.conversation)
    assert f"prefill {tokens} tokens: {tokens}/{tokens} (100.0%)" in said
    assert f"session loaded id={first} from=text tokens={tokens}" in said
    assert one.conversation.session.position == tokens
    one.run("three", "/save")
    assert "stripped" not in one.run("/list")
    assert ids(tmp_path) == [first]


def test_the_published_session_can_be_taken_up(chat, tmp_path):
    vector = kv_vectors.STRIPPED
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / vector.name).write_bytes(vector.content)
    one = chat()
    assert one.run("/list").endswith("3 tokens  0.0 MiB  stripped  Hello world\n")
    assert "> Hello  world" in one.run("/switch fe8c5b68")
    one.run("and now?")
    assert (
        tokenizer()
        .decode(one.conversation.last_prompt)
        .decode()
        .startswith("<｜User｜>Hello  world<｜User｜>and")
    )
    one.leave()
    assert files(tmp_path) == [vector.name]


def test_the_agents_folder_is_read_and_never_written(chat, tmp_path):
    agents = tmp_path / "home" / ".ds4" / "kvcache"
    text = "<｜begin▁of▁sentence｜><｜User｜>from the agent<｜Assistant｜></think>Done."
    path = put_session(agents, b"from the agent", text.encode())
    legacy = put_session(agents, None, text.encode())
    one = chat()
    assert one.run("/list").count("stripped, read-only  from the agent") == 2
    assert "which is only read" in one.run(f"/del {path.stem}")
    assert "Done." in one.run(f"/switch {path.stem}")
    # The answer that broke off is closed.
    assert one.conversation.tokens[-1] == tokenizer().specials.eos
    one.leave("go on")
    assert files(tmp_path) == [path.name]
    assert sorted(agents.iterdir()) == sorted([path, legacy])


def test_a_deleted_session_comes_back_only_with_a_new_turn(chat, tmp_path):
    one = chat()
    one.run("one", "/save")
    (name,) = files(tmp_path)
    assert one.run(f"/del {name[:8]}") == f"session {name[:8]} is deleted\n"
    assert (files(tmp_path), one.conversation.turns) == ([], 1)
    assert "saving" not in one.leave()
    two = chat()
    two.run("one", "/save")
    (name,) = files(tmp_path)
    two.run(f"/del {name[:8]}")
    two.leave("two")
    assert files(tmp_path) == [name]


def test_a_session_too_large_for_the_context_says_which_would_do(chat, tmp_path):
    big = chat(context=3000)
    big.leave("x" * 900)
    (first,) = ids(tmp_path)
    complaint = f"session {first} needs a context of 3000 tokens and this one has 2000: start with --ctx 3000"
    one = chat()
    one.run("kept")
    tokens = one.conversation.tokens
    assert complaint in one.run(f"/switch {first}")
    assert one.conversation.tokens == tokens
    assert one.conversation.missing(tokens) == 0
    with pytest.raises(UnusableSession, match=complaint):
        chat(resume=first)
    one.run(f"/strip {first}", "/ctx 600")
    assert "needs a context of 1390 tokens" in one.run(f"/switch {first}")


def test_a_damaged_session_leaves_the_conversation_as_it_was(chat, tmp_path):
    one = chat()
    one.run("one", "/new")
    (first,) = ids(tmp_path)
    path = tmp_path / "sessions" / files(tmp_path)[0]
    content = path.read_bytes()
    # Zeros where the state begins, as after a power failure, in a file of the right length.
    at = content.index(b"DS4SCRPT")
    path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])
    one.run("two")
    tokens, total = one.conversation.tokens, one.conversation.total.prefilled
    said = one.run(f"/switch {first}").splitlines()
    assert len(said) == 3  # saving, saved, and why not
    assert said[2].startswith(f"session {first} ")
    assert one.conversation.tokens == tokens
    # The live state is back, from the save before.
    assert one.conversation.session.tokens == tokens
    one.run("three")
    assert one.conversation.total.reused >= len(tokens)
    assert one.conversation.total.prefilled - total < 40


def test_resume_without_a_session_is_one_line(chat):
    with pytest.raises(UnusableSession, match="there is no saved session of this model in"):
        chat(resume=NEWEST)
    with pytest.raises(UnusableSession, match="no session starts with abc"):
        chat(resume="abc")


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
    assert len(files(tmp_path)) == 1


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
    assert len(files(tmp_path)) == 1
    before = (tmp_path / "sessions" / files(tmp_path)[0]).read_bytes()
    one.sessions.idle()
    one.run("/list")
    assert (tmp_path / "sessions" / files(tmp_path)[0]).read_bytes() == before
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
    assert len(files(tmp_path)) == 1


def test_idling_never_raises(chat, monkeypatch):
    one = chat()
    one.run("one")

    def broken(*_, **__):
        raise EngineFault("broken")

    monkeypatch.setattr(one.conversation, "catch_up", broken)
    monkeypatch.setattr(one.conversation, "missing", broken)
    one.sessions.idle()
    assert one.conversation.unsaved


def test_a_signal_to_end_saves_first(chat, tmp_path):
    one = chat()
    with pytest.raises(SystemExit):
        one.leave("one", SystemExit(143))
    assert len(files(tmp_path)) == 1
    again = chat(resume=NEWEST)
    assert again.conversation.turns == 1


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


def test_text_that_reads_like_a_control_mark_is_never_saved_as_text_only(chat, tmp_path):
    one = chat()
    one.run("what does <｜Assistant｜> mean? " * 20)
    tokens = one.conversation.tokens
    one.conversation.forget_state()
    said = one.run("/new")
    assert "text only" not in said
    (first,) = ids(tmp_path)
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


def test_ctrl_c_during_the_prefill_of_a_stripped_session_keeps_the_conversation(chat, tmp_path):
    one = chat(prefill_chunk=16)
    one.run("one " * 50, "/new")
    (first,) = ids(tmp_path)
    one.run(f"/strip {first}", "two")
    tokens = one.conversation.tokens
    with pytest.MonkeyPatch.context() as patch:
        sync = type(one.conversation.session).sync

        def interrupted(session, prompt, progress=None, **fields):
            signal.raise_signal(signal.SIGINT)
            return sync(session, prompt, progress, **fields)

        patch.setattr(type(one.conversation.session), "sync", interrupted)
        said = one.run(f"/switch {first}")
    assert said.endswith("interrupted\n")
    assert one.conversation.tokens == tokens
    one.run("three")
    assert one.conversation.turns == 2


def test_a_resumed_conversation_keeps_its_head_and_takes_the_present_effort(chat, tmp_path):
    one = chat(system="Old system.")
    one.leave("one")
    again = chat(system="New system.", resume=NEWEST)
    again.run("/nothink", "two")
    prompt = tokenizer().decode(again.conversation.last_prompt).decode()
    assert "Old system." in prompt
    assert "New system." not in prompt
    assert prompt.endswith("<｜User｜>two<｜Assistant｜></think>")
    again.run("/new", "three")
    assert "New system." in tokenizer().decode(again.conversation.last_prompt).decode()


def test_the_servers_store_is_no_folder_for_conversations(chat, tmp_path):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / ".model").write_text("{}")
    with pytest.raises(Exception, match="is a disk store of `ds4 serve`"):
        chat()
