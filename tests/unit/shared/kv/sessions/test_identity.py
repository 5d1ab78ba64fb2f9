"""Names and titles of saved sessions: the published example, all white space, what a terminal shows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kv.sessions.identity import collapse_title, session_name, shown_title, title_of_text
from shared.text import marks


def test_the_published_name() -> None:
    assert session_name(b"Hello world", 1_700_000_000) == "fe8c5b68d8e9bd6eae558cb82b5bcee2a94c31fb.kv"


def test_title_and_time_both_make_the_name() -> None:
    names = {session_name(title, time) for title in (b"a", b"b", b"") for time in (0, 1, 2**64 - 1)}
    assert len(names) == 9


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Hello  world", "Hello world"),
        ("\t Hello\r\n\v\f world \n", "Hello world"),
        ("a\u00a0 \u2003b", "a\u00a0 \u2003b"),
        ("", "(empty user prompt)"),
        (" \n\t", "(empty user prompt)"),
        ("x" * 5000, "x" * 5000),
        ("half a pair \ud83d", "half a pair \ufffd"),
    ],
)
def test_a_title_is_the_first_message_in_one_line(message: str, title: str) -> None:
    assert collapse_title(message) == title.encode()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (
            "<｜begin▁of▁sentence｜>system<｜User｜>Hello  world<｜Assistant｜></think>Hi<｜User｜>more",
            "Hello world",
        ),
        ("<｜User｜>one<｜User｜>two<｜Assistant｜>", "one"),
        ("<｜User｜>only this", "only this"),
        ("<｜User｜> \n<｜Assistant｜>", "(empty user prompt)"),
        ("<｜User｜>", "(empty user prompt)"),
        ("<｜Assistant｜>no user", "(no user prompt)"),
        ("", "(no user prompt)"),
    ],
)
def test_a_session_without_a_title_gets_one_from_its_text(text: str, title: str) -> None:
    assert title_of_text(text.encode()) == title.encode()


def test_a_text_need_not_be_utf8() -> None:
    assert title_of_text("<｜User｜>".encode() + b"\xff \xfe") == b"\xff \xfe"


@given(st.text())
def test_a_title_has_no_run_of_white_space(message: str) -> None:
    title = collapse_title(message)
    assert title == title.strip(b" \t\n\v\f\r") != b""
    assert not re.search(rb"[\t\n\v\f\r]|  ", title)
    assert collapse_title(title.decode()) == title
    assert title_of_text(b"head" + marks.USER.encode() + title) == title or "<｜" in message


@pytest.mark.parametrize(
    ("columns", "limit"), [(0, 20), (16, 20), (17, 5), (32, 20), (80, 68), (172, 160), (500, 160)]
)
def test_a_title_is_clipped_to_the_terminal(columns: int, limit: int) -> None:
    assert shown_title(b"x" * limit, columns) == "x" * limit
    assert shown_title(b"x" * (limit + 1), columns) == "x" * (limit - 3) + "..."


def test_no_character_is_cut_in_two() -> None:
    assert shown_title("ä".encode() * 11, 32) == "ä" * 8 + "..."
    assert shown_title("ä".encode() * 10, 32) == "ä" * 10


def test_a_title_does_not_command_the_terminal() -> None:
    assert shown_title(b"\x1b[2Jgone\x07", 80) == "?[2Jgone?"
    assert shown_title(b"bad \xff byte", 80) == "bad \ufffd byte"


@given(st.binary(max_size=400), st.integers(0, 300))
def test_what_is_shown_is_printable_and_fits(title: bytes, columns: int) -> None:
    shown = shown_title(title, columns)
    assert shown.isprintable()
    assert len(shown.encode()) <= (20 if columns <= 16 else min(columns - 12, 160))
