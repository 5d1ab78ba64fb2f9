"""Strict JSON in pieces, minified."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.text.json_stream import MAX_ATOM, MAX_DEPTH, JsonMinifier, escape_string, minify

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

TOKENS = [
    *(
        '"',
        "\\",
        "u12",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "1",
        "-",
        ".5",
        "e3",
        "0",
        "true",
        "null",
        " ",
        "a",
        "\t",
    ),
]


@settings(max_examples=150, deadline=None)
@given(value=VALUES, indent=st.sampled_from([None, 0, 3]), ascii_only=st.booleans(), step=st.integers(1, 9))
def test_valid_json_is_minified(value: object, indent: int | None, ascii_only: bool, step: int) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    minifier = JsonMinifier()
    data = text.encode()
    out = b""
    for start in range(0, len(data), step):
        assert minifier.feed(data[start : start + step]) == len(data[start : start + step])
        out += minifier.take()
    assert minifier.finish()
    assert (out + minifier.take()).decode() == json.dumps(
        value, separators=(",", ":"), ensure_ascii=ascii_only
    )


@settings(max_examples=400, deadline=None)
@given(text=st.lists(st.sampled_from(TOKENS), max_size=9).map("".join))
def test_agrees_with_the_standard_parser(text: str) -> None:
    try:
        json.loads(text, parse_constant=pytest.fail)
        valid = True
    except ValueError:
        valid = False
    assert (minify(text) is not None) is valid


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "NaN", "Infinity", "-", "01", "1.", "[1,]", '{"a":1,}', '{"a"}', "{1:2}", '"\\x"'),
        *('"\\u12g4"', '"a\nb"', '"a\tb"', "1 2", "[1 2]", "]", "[}", "truex", "'a'"),
    ],
)
def test_invalid(text: str) -> None:
    assert minify(text) is None


def test_limits() -> None:
    assert minify("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert minify("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) is None
    assert minify("1" * MAX_ATOM) is not None
    assert minify("1" * (MAX_ATOM + 1)) is None


def test_number_spelling_order_and_repeats_stay() -> None:
    assert minify('{ "b": 1.0e+2, "a": -0, "b": 100000000000000000000 }') == (
        '{"b":1.0e+2,"a":-0,"b":100000000000000000000}'
    )


def test_line_break_in_a_string_stops() -> None:
    minifier = JsonMinifier()
    assert minifier.feed(b'["ab\ncd"]') == 4
    assert minifier.in_string
    assert minifier.take() == b'["ab'


def test_strings_are_followed_after_a_fault() -> None:
    minifier = JsonMinifier()
    minifier.feed(b'{bad "x \\" y')
    assert not minifier.valid
    assert minifier.in_string
    minifier.feed(b'"')
    assert not minifier.in_string
    assert minifier.take() == b"{"


@given(text=st.text())
def test_escaped_strings(text: str) -> None:
    assert json.loads(f'"{escape_string(text)}"') == text
