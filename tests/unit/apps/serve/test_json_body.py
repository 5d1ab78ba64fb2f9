"""The request body parser: nothing but RequestError comes out, whatever goes in."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.json_body import parse_object
from shared.errors import RequestError


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "not valid JSON"),
        (b'{"a":1} x', "not valid JSON"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e999}', "too large"),
        (b'{"a":' + b"9" * 5000 + b"}", "too large"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b"true", "a boolean"),
        (b"1.5", "a number"),
        (b'"x"', "a string"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"x":' + b"[" * 10_000 + b"0" + b"]" * 10_000 + b"}", "256 levels"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "256 levels"),
    ],
)
def test_bad_bodies_are_one_clear_line(body: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        parse_object(body, depth=256)
    assert caught.value.status == 400
    assert "\n" not in str(caught.value)


def test_the_depth_limit_is_exact() -> None:
    def nested(levels: int) -> bytes:
        return b'{"x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert parse_object(nested(256), depth=256)
    with pytest.raises(RequestError):
        parse_object(nested(257), depth=256)


def test_the_last_duplicate_wins_and_a_byte_order_mark_is_skipped() -> None:
    assert parse_object(b'\xef\xbb\xbf{"a":1,"a":2}', depth=256) == {"a": 2}


def test_lone_surrogates_become_replacement_characters_everywhere() -> None:
    body = rb'{"a\ud800":["x\udfffy",{"b":"\ud83d\ude00"}]}'
    assert parse_object(body, depth=256) == {"a\ufffd": ["x\ufffdy", {"b": "\U0001f600"}]}


@given(st.binary(max_size=60))
def test_any_bytes_give_an_object_or_a_request_error(body: bytes) -> None:
    with contextlib.suppress(RequestError):
        assert isinstance(parse_object(body, depth=8), dict)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=4))
def test_what_json_writes_is_read_back(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value).encode(), depth=256) == json.loads(json.dumps(value))
