"""The lines of the list of sessions."""

from __future__ import annotations

import pytest

from apps.chat.session_table import age, session_lines
from tests.support.cache_builder import CREATED
from tests.support.saved_sessions import folder_in, put_session, save


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "now"),
        (0, "now"),
        (59.9, "now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86399, "23 h ago"),
        (86400, "1 d ago"),
        (86400 * 400, "400 d ago"),
    ],
)
def test_ages_have_one_unit(seconds, text):
    assert age(seconds) == text


def test_columns_line_up_and_the_current_session_is_marked(tmp_path):
    put_session(tmp_path / "own", b"a title", b"x", bytes(3 << 20), tokens=123456)
    put_session(tmp_path / "theirs", b"theirs\x1b[2J", b"x")
    folder = folder_in(tmp_path / "own", others=[tmp_path / "theirs"])
    sessions = folder.sessions()
    current = next(stored.identity for stored in sessions if stored.title == b"a title")
    lines = session_lines(sessions, current=current, columns=100, now=CREATED + 7200)
    by_mark = {line[0]: line for line in lines}
    assert by_mark["*"] == f"* {current[:8]}  2 h ago  123456 tokens  3.0 MiB" + " " * 23 + "a title"
    assert by_mark[" "][10:] == "  2 h ago       3 tokens  0.0 MiB  stripped, read-only  theirs?[2J"


@pytest.mark.parametrize("columns", [10, 40, 80, 200])
def test_a_long_title_is_clipped_to_the_line(tmp_path, columns):
    folder = folder_in(tmp_path)
    save(folder, "word " * 100)
    (line,) = session_lines(folder.sessions(), current=None, columns=columns, now=CREATED)
    assert line.endswith("...")
    # On a narrow terminal 20 bytes of the title are shown all the same.
    assert len(line) <= max(columns, 90)
    if columns >= 80:
        assert len(line) >= columns - 3


def test_an_empty_folder():
    assert session_lines([], current=None, columns=80, now=0) == [
        "there are no saved sessions of this model yet"
    ]
