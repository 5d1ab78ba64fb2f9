"""Typing: sending, several lines, history and completion."""

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
