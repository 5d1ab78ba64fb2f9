"""Typing: sending, several lines, history and completion."""

import threading

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from apps.chat.keyboard import ChatCompleter, line_reader


def _type(tmp_path, keys):
    with create_pipe_input() as source:
        source.send_text(keys)
        return line_reader(tmp_path / "history", source=source, output=DummyOutput())()


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("hello\r", "hello"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("one\ntwo\r", "one\ntwo"),
        ("\x1b[200~pasted\r\nlines\x1b[201~\r", "pasted\nlines"),
        ("\r", ""),
    ],
)
def test_enter_sends_and_other_keys_make_lines(tmp_path, keys, line):
    assert _type(tmp_path, keys) == line


def test_control_keys(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        _type(tmp_path, "half a line\x03")
    with pytest.raises(EOFError):
        _type(tmp_path, "\x04")


def test_the_last_line_comes_back_with_the_arrow(tmp_path):
    _type(tmp_path, "first\r")
    assert _type(tmp_path, "\x1b[A\r") == "first"


def _completions(text):
    document = Document(text)
    return [c.text for c in ChatCompleter().get_completions(document, CompleteEvent())]


def test_commands_levels_and_files_complete(tmp_path):
    (tmp_path / "notes.txt").touch()
    assert _completions("/th") == ["/think", "/think-max"]
    assert _completions("/effort ") == ["low", "high", "max"]
    assert _completions("/effort m") == ["max"]
    assert _completions(f"/read {tmp_path}/no") == ["tes.txt"]
    assert _completions("what is /th") == []
    assert _completions("hello") == []


def _idle(tmp_path, seconds, keys=""):
    """Read a line from a keyboard on which `keys` are typed, and Enter once the reader has called out."""
    called = []
    with create_pipe_input() as source:

        def when_idle():
            called.append(threading.current_thread() is threading.main_thread())
            source.send_text(" after\r")

        source.send_text(keys)
        read = line_reader(
            tmp_path / "history",
            when_idle=when_idle,
            idle_seconds=seconds,
            source=source,
            output=DummyOutput(),
        )
        return read(), called


def test_a_prompt_that_waits_calls_out_once_on_its_own_thread_and_goes_on(tmp_path):
    assert _idle(tmp_path, 0.0, "before") == ("before after", [True])


def test_a_prompt_that_was_answered_in_time_does_not_call_out(tmp_path):
    assert _idle(tmp_path, 3600.0, "quick\r") == ("quick", [])
