"""The interactive chat on a real (pseudo) terminal."""

import signal

import pytest

from tests.support.scripts import script_file, turn
from tests.support.terminal import Terminal


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def open_terminal(*turns, arguments=(), environment=None, **script):
        path = script_file(tmp_path, *turns, **script)
        opened.append(Terminal("--script", str(path), "--nothink", *arguments, **(environment or {})))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


def test_a_conversation(terminal, tmp_path):
    chat = terminal(turn("Hello there."), turn("Second."))
    shown = chat.wait_for("ds4>")
    assert "/help" in shown
    assert "thinking off" in shown
    chat.type("hi\r")
    chat.wait_for("Hello there.")
    chat.wait_for("t/s, generation: ")
    chat.wait_for("ds4>")
    chat.type("/ctx abc\r")
    chat.wait_for("/ctx needs a positive number")
    chat.wait_for("ds4>")
    chat.type("again\r")
    chat.wait_for("Second.")
    chat.wait_for("ds4>")
    chat.type("\x04")
    assert chat.wait_for_end() == 0
    assert "Traceback" not in chat.raw
    assert '"again"' in (tmp_path / "history").read_text()


def test_ctrl_c_stops_an_answer_drops_a_line_and_never_leaves(terminal, tmp_path):
    chat = terminal(turn(*["word "] * 200, piece_delay_s=0.05), turn("Next."))
    chat.wait_for("ds4>")
    chat.type("one\r")
    chat.wait_for("word word")
    chat.type("\x03")
    chat.wait_for("interrupted: the partial answer stays")
    chat.wait_for("ds4>")
    chat.type("half a li\x03")
    chat.type("two\r")
    chat.wait_for("Next.")
    chat.wait_for("ds4>")
    chat.type("/quit\r")
    assert chat.wait_for_end() == 0
    assert '"half' not in (tmp_path / "history").read_text()


def test_ctrl_c_cancels_a_prefill(terminal):
    slow = turn("A", prefill_s_per_1000_tokens=20.0)
    chat = terminal(slow, turn("B"), prefill_chunk=16)
    chat.wait_for("ds4>")
    chat.type("x" * 300 + "\r")
    chat.wait_for("prefill 3")
    chat.type("\x03")
    chat.wait_for("interrupted: the message was not sent")
    chat.wait_for("ds4>")
    chat.type("/quit\r")
    assert chat.wait_for_end() == 0


def test_what_is_typed_during_an_answer_waits_for_the_prompt_unseen(terminal):
    chat = terminal(turn(*["word "] * 20, piece_delay_s=0.05), turn("Second."), turn("Third."))
    chat.wait_for("ds4>")
    chat.type("one\r")
    chat.wait_for("word word")
    chat.type("typed ahead\rand more\r")
    shown = chat.wait_for("generation: ")
    assert "typed" not in shown
    assert "Second." in chat.wait_for("generation: ")
    assert "Third." in chat.wait_for("generation: ")
    chat.wait_for("ds4>")
    chat.type("/quit\r")
    assert chat.wait_for_end() == 0


def test_a_hasty_second_ctrl_c_costs_nothing(terminal):
    chat = terminal(turn(*["word "] * 200, piece_delay_s=0.05), turn("Next."))
    chat.wait_for("ds4>")
    chat.type("one\r")
    chat.wait_for("word word")
    chat.type("\x03\x03")
    chat.wait_for("interrupted: the partial answer stays")
    chat.wait_for("ds4>")
    chat.type("/stats\r")
    chat.wait_for("turns: 1")
    chat.wait_for("ds4>")
    chat.type("/quit\r")
    assert chat.wait_for_end() == 0
    assert "Traceback" not in chat.raw


@pytest.mark.parametrize("busy", [True, False])
def test_sigterm_leaves_the_terminal_as_it_was(terminal, busy):
    chat = terminal(turn(*["word "] * 200, piece_delay_s=0.05))
    chat.wait_for("ds4>")
    if busy:
        chat.type("one\r")
        chat.wait_for("word word")
    assert not chat.modes_are_back
    chat.process.send_signal(signal.SIGTERM)
    assert chat.wait_for_end() == 143
    assert chat.modes_are_back
    assert "Traceback" not in chat.raw


def test_a_conversation_outlives_its_terminal_and_goes_on(terminal, tmp_path):
    answers = [turn("Hello there."), turn("Second.")]
    chat = terminal(*answers)
    chat.wait_for("ds4>")
    chat.type("hi\r")
    chat.wait_for("generation: ")
    chat.wait_for("ds4>")
    chat.process.send_signal(signal.SIGHUP)
    assert chat.wait_for_end() == 129
    assert "Traceback" not in chat.raw
    (file,) = tmp_path.rglob("sessions/*/*.kv")

    again = terminal(*answers, arguments=["--resume"])
    shown = again.wait_for("ds4>")
    assert f"session loaded id={file.name[:8]}" in shown
    assert "> hi\nHello there.\n" in shown
    again.type("/list\r")
    assert f"* {file.name[:8]}" in again.wait_for("hi\n")
    again.wait_for("ds4>")
    again.type("more\r")
    again.wait_for("generation: ")
    again.wait_for("ds4>")
    again.type("\x04")
    assert "session saved id=" in again.wait_for("MiB")
    assert again.wait_for_end() == 0
    assert [path.name for path in tmp_path.rglob("sessions/*/*.kv")] == [file.name]


@pytest.mark.parametrize("busy", [False, True])
def test_a_window_that_is_closed_costs_no_conversation(terminal, tmp_path, busy):
    chat = terminal(turn("Hello there."), turn(*["word "] * 200, piece_delay_s=0.05))
    chat.wait_for("ds4>")
    chat.type("hi\r")
    chat.wait_for("generation: ")
    chat.wait_for("ds4>")
    if busy:
        chat.type("more\r")
        chat.wait_for("word word")
    chat.hang_up()
    (file,) = tmp_path.rglob("sessions/*/*.kv")
    assert b"Hello there." in file.read_bytes()


@pytest.mark.parametrize(("environment", "dim"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_thinking_is_dim_unless_colour_is_off(terminal, environment, dim):
    chat = terminal(turn("Hm.", "</think>", "Yes."), turn("Hm.", "</think>", "Yes."), environment=environment)
    chat.wait_for("ds4>")
    chat.type("/think\r")
    chat.wait_for("thinking on")
    chat.wait_for("ds4>")
    chat.type("hi\r")
    shown = chat.wait_for("t/s, generation: ")
    assert "Hm.\nYes.\n" in shown
    assert ("\x1b[90mH" in chat.raw) is dim
    assert ("\x1b[36m" in chat.raw) is dim
