"""Lines become commands or messages; bad ones say what would be right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.chat.slash import SLASH_COMMANDS, BadInput, help_lines, parse_slash, positive_number


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hello", None),
        ("", None),
        ("/help", ("/help", "")),
        ("  /ctx  4096 ", ("/ctx", "4096")),
        ("/exit", ("/quit", "")),
        ("/read a b.txt", ("/read", "a b.txt")),
        ("/usr/bin/python is what?", None),
        ("/nothink\nbut this is text", None),
        ("/read a.txt\n/read b.txt", None),
        ("a /quit", None),
    ],
)
def test_parse(line, expected):
    assert parse_slash(line) == expected


@pytest.mark.parametrize("line", ["/nope", "/", "/Help", "/thinkmax x"])
def test_an_unknown_command_is_named(line):
    with pytest.raises(BadInput, match=f"unknown command {line.split()[0]}: /help"):
        parse_slash(line)


@pytest.mark.parametrize("line", ["/think about life", "/quit now", "/exit 1", "/stats x"])
def test_text_behind_a_command_is_not_swallowed(line):
    with pytest.raises(BadInput, match=f"^{line.split()[0]} takes nothing behind it"):
        parse_slash(line)


@given(st.integers(1, 999_999_999))
def test_positive_numbers(number):
    assert positive_number(str(number), "/ctx", 1) == number


@pytest.mark.parametrize("text", ["", "abc", "0", "-5", "+5", "1_000", "4096x", "1.5", "٤", "00"])
def test_what_is_no_positive_number(text):
    with pytest.raises(BadInput, match=r"^/ctx needs a positive number, for example /ctx 65536$"):
        positive_number(text, "/ctx", 65536)


def test_a_number_beyond_all_machines_is_too_large():
    with pytest.raises(BadInput, match=r"^/ctx 999999999999 is too large$"):
        positive_number("9" * 5000, "/ctx", 65536)


def test_help_lists_every_command():
    lines = help_lines()
    for command in SLASH_COMMANDS:
        assert any(line.startswith(command.name) and command.help in line for line in lines)
