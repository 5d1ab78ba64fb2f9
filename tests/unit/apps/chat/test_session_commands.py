"""Saved conversations in the chat: the commands that list them, take them up, strip and delete them."""

from __future__ import annotations

import signal

import pytest

from apps.chat.settings import NEWEST
from shared.kv.sessions.stored_session import UnusableSession
from shared.scripted.vocabulary import tokenizer
from tests.support import kv_vectors
from tests.support.saved_sessions import put_session, saved_files, saved_ids


def test_a_session_keeps_its_name_over_all_saves(chat, tmp_path):
    one = chat()
    one.run("one", "/save")
    name = saved_files(tmp_path)
    assert "is saved already" in one.run("/save")
    one.run("two", "/save")
    assert saved_files(tmp_path) == name
    other = chat()
    other.leave("another first message")
    assert len(saved_files(tmp_path)) == 2


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
    assert (len(saved_files(tmp_path)), one.conversation.turns) == (1, 0)
    one.run("two", "/new")
    assert len(saved_files(tmp_path)) == 2
    assert one.run("/new") == "new conversation\n"


def test_switching_saves_and_shows_the_last_three_turns(chat, tmp_path):
    one = chat()
    one.run("1", "2", "3", "4", "/new")
    (first,) = saved_ids(tmp_path)
    one.run("other")
    said = one.run(f"/switch {first}")
    assert "session saved id=" in said
    shown = said[said.index("session loaded") :].splitlines()[1:]
    assert shown == ["> 2", "Yes.", "> 3", "Yes.", "> 4", "Yes."]
    assert one.conversation.turns == 4
    assert [line[:10] for line in one.run("/list").splitlines() if line[0] == "*"] == [f"* {first}"]
    assert one.run(f"/switch {first}") == f"session {first} is the one that you are in\n"
    (other,) = set(saved_ids(tmp_path)) - {first}
    one.run("/switch " + other.upper()[:7])
    assert "other" in tokenizer().decode(one.conversation.tokens).decode()


def test_the_files_of_both_sessions_and_their_live_state_are_right_after_switching(chat, tmp_path):
    one = chat()
    one.run("first", "/new", "second")
    one.run("/switch " + saved_ids(tmp_path)[0])
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
    (first,) = saved_ids(tmp_path)
    size = (tmp_path / "sessions" / saved_files(tmp_path)[0]).stat().st_size
    assert f"session {first} is stripped: 0.0 MiB less, its text stays\n" == one.run(f"/strip {first}")
    assert (tmp_path / "sessions" / saved_files(tmp_path)[0]).stat().st_size < size
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
    assert saved_ids(tmp_path) == [first]


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
    assert saved_files(tmp_path) == [vector.name]


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
    assert saved_files(tmp_path) == [path.name]
    assert sorted(agents.iterdir()) == sorted([path, legacy])


def test_a_deleted_session_does_not_come_back(chat, tmp_path):
    one = chat()
    one.run("one", "/save")
    (name,) = saved_files(tmp_path)
    said = f"session {name[:8]} is deleted: this conversation goes on as a new session\n"
    assert one.run(f"/del {name[:8]}") == said
    assert (saved_files(tmp_path), one.conversation.turns) == ([], 1)
    assert "saving" not in one.leave()


@pytest.mark.parametrize("after", [False, True])
def test_what_is_said_around_a_deletion_is_saved_as_a_session_of_its_own(chat, tmp_path, after):
    one = chat()
    one.run("one", "/save")
    (name,) = saved_files(tmp_path)
    delete = f"/del {name[:8]}"
    one.run(*([delete, "two"] if after else ["two", delete]))
    one.leave()
    (other,) = saved_files(tmp_path)
    assert other != name
    again = chat(resume=NEWEST)
    assert again.conversation.tokens == one.conversation.tokens
    assert again.run("/list").splitlines()[0].endswith("  one")


def test_deleting_another_session_is_all_that_it_is(chat, tmp_path):
    chat().leave("other")
    (name,) = saved_files(tmp_path)
    one = chat()
    one.run("one", "/save")
    assert one.run(f"/del {name[:8]}") == f"session {name[:8]} is deleted\n"
    (mine,) = saved_files(tmp_path)
    one.leave("two")
    assert saved_files(tmp_path) == [mine]


def test_a_session_too_large_for_the_context_says_which_would_do(chat, tmp_path):
    big = chat(context=3000)
    big.leave("x" * 900)
    (first,) = saved_ids(tmp_path)
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
    (first,) = saved_ids(tmp_path)
    path = tmp_path / "sessions" / saved_files(tmp_path)[0]
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


def test_ctrl_c_during_the_prefill_of_a_stripped_session_keeps_the_conversation(chat, tmp_path):
    one = chat(prefill_chunk=16)
    one.run("one " * 50, "/new")
    (first,) = saved_ids(tmp_path)
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
