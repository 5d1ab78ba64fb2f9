"""A long system prompt is computed once and then comes from disk."""

from __future__ import annotations

import pytest

from apps.chat.settings import NEWEST
from shared.errors import Cancelled
from tests.support.chats import Chat
from tests.support.scripts import turn

SYSTEM = "Be brief. " * 60
ANSWERS = [turn("</think>", "A")] * 9


@pytest.fixture
def chat(tmp_path):
    opened = []

    def open_chat(**fields):
        opened.append(Chat(*ANSWERS, folder=tmp_path / "sessions", **{"system": SYSTEM, **fields}))
        return opened[-1]

    yield open_chat
    for each in opened:
        each.close()


def prompt_file(tmp_path):
    return tmp_path / "sessions" / "sysprompt.kv"


def test_the_first_conversation_saves_it_and_the_next_ones_take_it(chat, tmp_path):
    first = chat()
    said = first.run("one")
    first.close()
    head = len(SYSTEM) + 1
    assert prompt_file(tmp_path).exists()
    assert "taken from disk" not in said
    total = first.conversation.total
    assert (total.reused, total.prefilled) == (0, len(first.conversation.last_prompt))
    before = prompt_file(tmp_path).read_bytes()

    second = chat()
    said = second.run("another")
    tokens = next(int(word) for word in said.split() if word.isdigit())
    assert said.startswith(f"system prompt: {tokens} tokens taken from disk\n")
    assert tokens > head
    assert second.conversation.total.reused == tokens
    assert prompt_file(tmp_path).read_bytes() == before
    # A new conversation in the same program begins with it too.
    second.run("/new")
    assert "taken from disk" in second.run("yet another")


def test_another_system_text_or_effort_replaces_it(chat, tmp_path):
    chat().leave("one")
    before = prompt_file(tmp_path).read_bytes()
    other = chat(system=SYSTEM + "!")
    assert "taken from disk" not in other.leave("one")
    changed = prompt_file(tmp_path).read_bytes()
    assert changed != before
    effort = chat(system=SYSTEM + "!")
    assert "taken from disk" not in effort.leave("/nothink", "one")
    assert prompt_file(tmp_path).read_bytes() != changed


def test_a_short_one_is_not_worth_a_file(chat, tmp_path):
    short = chat(system="Be brief.")
    short.leave("/nothink", "one")
    assert not prompt_file(tmp_path).exists()


def test_a_turn_that_goes_on_needs_none(chat):
    one = chat()
    one.run("one")
    assert "disk" not in one.run("two")
    one.leave()
    again = chat(resume=NEWEST)
    assert "disk" not in again.run("three")


def test_without_autosave_none_is_written_but_one_that_is_there_is_used(chat, tmp_path):
    chat(autosave=False).run("one")
    assert not prompt_file(tmp_path).exists()
    chat().leave("one")
    assert "taken from disk" in chat(autosave=False).run("one")


def test_a_system_prompt_that_fills_the_context_is_left_to_the_turn(chat):
    assert "the prompt has " in chat(context=560).run("one")


def test_it_can_be_interrupted(chat, tmp_path):
    one = chat(prefill_chunk=50)
    calls = []

    def wish():
        calls.append(True)
        return len(calls) > 3

    with pytest.raises(Cancelled):
        one.conversation.send("one", wish)
    assert not prompt_file(tmp_path).exists()
    one.run("one")
    assert one.conversation.turns == 1


def test_a_folder_that_cannot_be_written_costs_no_answer(chat, tmp_path):
    (tmp_path / "sessions").write_bytes(b"")
    one = chat()
    one.run("one")
    assert one.conversation.turns == 1
    assert "the system prompt's state was not saved: cannot save in" in one.run("/list")
