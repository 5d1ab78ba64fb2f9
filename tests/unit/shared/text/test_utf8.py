"""The UTF-8 hold: never a replacement character for what later bytes complete."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.text.utf8 import Utf8Stream, to_bytes

_DATA = st.lists(
    st.binary(max_size=4) | st.text(max_size=4).map(to_bytes) | st.just(b"\xf0\x9f\x9a"), max_size=8
).map(b"".join)


@given(data=_DATA, cuts=st.lists(st.integers(0, 40), max_size=8))
def test_any_cuts_give_the_text_of_the_whole(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(at, len(data)) for at in cuts), len(data)]
    stream = Utf8Stream()
    texts = [stream.feed(data[start:end]) for start, end in pairwise(edges)]
    assert "".join(texts) + stream.flush() == data.decode("utf-8", "replace")


def test_a_character_comes_whole_and_at_once() -> None:
    stream = Utf8Stream()
    assert [stream.feed(bytes([byte])) for byte in "hé中🦊".encode()] == [
        "h",
        "",
        "é",
        "",
        "",
        "中",
        "",
        "",
        "",
        "🦊",
    ]
    assert stream.flush() == ""


def test_invalid_bytes_do_not_stall() -> None:
    stream = Utf8Stream()
    assert stream.feed(b"\xff") == "\ufffd"
    assert stream.feed(b"\xf0\x9f") == ""
    assert stream.feed(b"A") == "\ufffdA"


def test_flush_ends_a_dangling_tail_and_starts_anew() -> None:
    stream = Utf8Stream()
    assert stream.feed(b"a\xe4\xb8") == "a"
    assert stream.flush() == "\ufffd"
    assert stream.feed(b"\xad") == "\ufffd"
