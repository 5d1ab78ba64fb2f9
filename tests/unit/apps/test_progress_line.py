"""How far counted work is: one line that is rewritten, or a few lines."""

import pytest

from apps.progress_line import progress_line


def test_where_lines_cannot_be_rewritten(capsys):
    with progress_line(40) as tell:
        for done in range(41):
            tell(done, f"{done} begun")
            tell(done, f"{done} going on")
    assert capsys.readouterr().err.splitlines() == [f"{done} begun" for done in range(2, 41, 2)]


def test_what_follows_on_a_terminal_begins_a_line_however_the_work_ends(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    def work():
        with progress_line(2) as tell:
            tell(0, "none")
            tell(1, "one")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert capsys.readouterr().err == "\r\x1b[Knone\r\x1b[Kone\n"


def test_nothing_is_ended_that_was_not_begun(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_line(2):
        pass
    assert capsys.readouterr().err == ""
