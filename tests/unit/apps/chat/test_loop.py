"""The interactive loop: commands, bad input, failures; nothing but leaving ends it."""

import json
import signal
from pathlib import Path

import pytest

from shared.scripted.pauses import Pauses
from tests.support.chats import Chat
from tests.support.scripts import turn


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("/ctx abc", "/ctx needs a positive number, for example /ctx 65536\n"),
        ("/ctx", "/ctx needs a positive number, for example /ctx 65536\n"),
        ("/ctx 0", "/ctx needs a positive number, for example /ctx 65536\n"),
        ("/ctx 1", "/ctx 1 is too small: the conversation has 37 tokens\n"),
        ("/ctx 9999999999", "/ctx 9999999999 is too large\n"),
        ("/think hard", "/think takes nothing behind it: send the rest as a message of its own\n"),
        ("/ctx 999999", "too much\n"),
        ("/power 0", "/power needs a positive number, for example /power 50\n"),
        ("/power 101", "/power takes 1 to 100 percent\n"),
        ("/power x", "/power needs a positive number, for example /power 50\n"),
        ("/effort", "/effort needs one of low, high, max (now high)\n"),
        ("/effort none", "/effort needs one of low, high, max (now high)\n"),
        ("/read", "/read needs a file name\n"),
        ("/read /none/such", "cannot read /none/such: No such file or directory\n"),
        ("/nope", "unknown command /nope: /help lists the commands\n"),
    ],
)
def test_bad_input_says_what_is_right_and_the_conversation_goes_on(line, complaint):
    chat = Chat(turn("A"))
    chat.run("one")
    said = chat.run(line)
    if "37 tokens" in complaint:
        complaint = complaint.replace("37", str(len(chat.conversation)))
    assert said == complaint
    assert chat.conversation.turns == 1
    chat.run("two")
    assert chat.conversation.turns == 2


def test_a_message_is_answered_with_figures():
    chat = Chat(turn("A", "</think>", "B"))
    said = chat.run("hello")
    assert chat.out.text == "A\nB\n"
    assert said.splitlines()[-1].startswith("prefill: ")
    assert " t/s, generation: " in said


def test_empty_lines_and_dropped_lines_are_ignored():
    chat = Chat(turn("A"))
    assert chat.run("", "  \n ", KeyboardInterrupt(), "") == ""
    assert chat.conversation.turns == 0


@pytest.mark.parametrize("word", ["/quit", "/exit", " /quit "])
def test_leaving(word):
    chat = Chat(turn("A"))
    chat.leave(word, "never read")
    assert chat.lines == ["never read"]


def test_effort_commands_confirm_in_one_line():
    chat = Chat(turn("A"))
    assert chat.run("/nothink") == "thinking off, effort profile official\n"
    assert chat.run("/think") == "thinking on, effort high, effort profile official\n"
    assert chat.run("/think-max") == "thinking on, effort max, effort profile official\n"
    assert chat.run("/effort low") == "thinking on, effort low, effort profile official\n"
    assert chat.conversation.effort == "low"


def test_maximum_effort_of_a_preview_checkpoint_needs_the_context(monkeypatch):
    monkeypatch.setattr("shared.scripted.engine.ScriptedEngine.effort_profile", "preview")
    said = Chat(turn("A")).run("/think-max").splitlines()
    assert "effort max needs a context of 393216 tokens" in said[0]
    assert said[1] == "thinking on, effort high, effort profile preview"


def test_context_power_and_statistics():
    chat = Chat(turn("A"))
    chat.run("one")
    tokens = len(chat.conversation)
    assert chat.run("/ctx 1512") == f"context 1512: the next turn prefills all {tokens} tokens\n"
    assert chat.run("/power") == "power 100 %\n"
    assert chat.run("/power 40") == "power 40 %\n"
    assert chat.engine.power.percent == 40
    assert chat.run("/stats").splitlines()[:3] == [
        "turns: 1",
        f"context: {tokens} of 1512 tokens",
        f"prefilled: {tokens - 2} tokens, reused: 0, generated: 1",
    ]


def test_a_file_becomes_the_next_message(tmp_path):
    (tmp_path / "note.txt").write_bytes(b"caf\xc3\xa9 \xff\n")
    (tmp_path / "blank").write_text(" \n")
    chat = Chat(turn("A"))
    chat.run(f"/read {tmp_path}/note.txt")
    assert (
        "<｜User｜>café \ufffd\n<｜Assistant｜>"
        in chat.engine.tokenizer.decode(chat.conversation.last_prompt).decode()
    )
    assert "is empty" in chat.run(f"/read {tmp_path}/blank")


def test_an_engine_fault_is_one_line_and_the_next_turn_works():
    chat = Chat(turn("abc", fail={"at": "decode", "after": 0}), turn("B"))
    said = chat.run("one")
    assert "Traceback" not in said
    assert chat.conversation.turns == 0
    chat.run("two")
    assert (chat.conversation.turns, chat.out.text) == (1, "B\n")


def test_a_fault_of_ours_does_not_cost_the_conversation(monkeypatch):
    chat = Chat(turn("A"))
    chat.run("one")
    with monkeypatch.context() as patch:
        patch.setattr(chat.conversation, "send", lambda *_: 1 / 0)
        assert chat.run("two") == "internal error: ZeroDivisionError: division by zero\n"
    chat.run("three")
    assert chat.conversation.turns == 2


def test_ctrl_c_while_the_answer_comes_keeps_it_and_prompts_again():
    pieces_due = []

    def press_at_the_third(seconds):
        pieces_due.append(seconds)
        if len(pieces_due) == 3:
            signal.raise_signal(signal.SIGINT)

    chat = Chat(turn(*"abcdef", piece_delay_s=1.0), turn("B"), pauses=Pauses(sleep=press_at_the_third))
    said = chat.run("one")
    assert "interrupted: the partial answer stays\n" in said
    assert chat.out.text.rstrip("\n") in "abcdef"
    assert 0 < len(chat.out.text.strip()) < 6
    chat.run("two")
    assert chat.conversation.turns == 2


def test_the_trace_tells_what_was_sent_and_what_came(tmp_path):
    chat = Chat(turn("A", "</think>", "é"), trace=tmp_path / "trace")
    with chat.trace:
        chat.run("one")
    (line,) = (tmp_path / "trace").read_text().splitlines()
    event = json.loads(line)
    assert (event["event"], event["cause"], event["text"]) == ("turn", "eos", "A</think>é")
    assert event["prompt_tokens"] == chat.conversation.last_prompt
    assert event["prompt"].endswith("<｜User｜>one<｜Assistant｜><think>")
    assert (tmp_path / "trace").stat().st_mode & 0o777 == 0o600


def test_a_trace_that_cannot_go_on_costs_no_answer():
    chat = Chat(turn("A"), turn("B"), trace=Path("/dev/full"))
    said = chat.run("one", "two")
    assert said.count("the trace ends here: cannot write ") == 1
    assert said.count("t/s, generation: ") == 2
    assert chat.conversation.turns == 2


def test_ctrl_c_that_tears_a_step_drops_the_turn_and_its_state(monkeypatch):
    chat = Chat(turn("A"))
    chat.run("one")
    forgotten = []
    with monkeypatch.context() as patch:

        def torn(*_):
            raise KeyboardInterrupt

        patch.setattr(chat.conversation, "send", torn)
        patch.setattr(chat.conversation, "forget_state", lambda: forgotten.append(True))
        assert chat.run("two") == "interrupted: the turn was dropped\n"
    assert forgotten == [True]
    chat.run("three")
    assert chat.conversation.turns == 2


def test_ctrl_c_between_turns_costs_nothing(monkeypatch):
    chat = Chat(turn("A"))
    chat.run("one")
    monkeypatch.setattr(
        "apps.chat.loop.help_lines", lambda: (_ for _ in ()).throw(KeyboardInterrupt), raising=True
    )
    monkeypatch.setattr(chat.conversation, "forget_state", lambda: pytest.fail("the state was dropped"))
    assert chat.run("/help", "two").count("t/s, generation: ") == 1
    assert chat.conversation.turns == 2


def test_help_lists_the_commands():
    said = Chat(turn("A")).run("/help")
    assert "/read FILE" in said
    assert "Ctrl+C" in said
