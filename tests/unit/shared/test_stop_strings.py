"""Stop strings over bytes, however they are cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.stop_strings import StopStrings

strings = st.text(alphabet="ab", min_size=1, max_size=5)


def run(stops: list[str], parts: list[bytes]) -> tuple[bytes, str | None]:
    watch = StopStrings(stops)
    text = b"".join(watch.feed(part) for part in parts)
    return text + watch.flush(), watch.matched


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


def found_in_whole(stops: list[str], text: str) -> tuple[bytes, str | None]:
    found = [(text.index(stop), len(stop), stop) for stop in stops if stop and stop in text]
    start, _, stop = min(found, default=(len(text), 0, None))
    return text[:start].encode(), stop


@given(st.lists(strings, max_size=4), st.text(alphabet="abc", max_size=30), st.lists(st.integers(0, 99)))
def test_any_cuts_equal_the_whole_text(stops: list[str], text: str, places: list[int]) -> None:
    assert run(stops, cut(text.encode(), places)) == found_in_whole(stops, text)


@given(st.lists(strings, min_size=1, max_size=4), st.text(alphabet="abc", max_size=30))
def test_holds_only_what_may_become_a_stop_string(stops: list[str], text: str) -> None:
    watch = StopStrings(stops)
    released = b""
    for count, letter in enumerate(text.encode(), 1):
        released += watch.feed(bytes([letter]))
        if watch.matched is not None:
            return
        held = text.encode()[len(released) : count].decode()
        partial = any(stop.startswith(held) for stop in stops)
        waiting = any(stop in held for stop in stops)
        assert partial or waiting, held


def test_a_match_is_final_at_once_when_nothing_earlier_is_open() -> None:
    watch = StopStrings(["stop"])
    assert watch.feed(b"ab st") == b"ab "
    assert watch.matched is None
    assert watch.feed(b"op and more") == b""
    assert watch.matched == "stop"
    assert watch.feed(b"dropped") == b""
    assert watch.flush() == b""


def test_a_longer_string_that_began_earlier_is_waited_for() -> None:
    watch = StopStrings(["bc", "abcd"])
    assert (watch.feed(b"xabc"), watch.matched) == (b"x", None)
    assert (watch.feed(b"d"), watch.matched) == (b"", "abcd")
    assert run(["bc", "abcd"], [b"xabce"]) == (b"xa", "bc")
    assert run(["bc", "abcd"], [b"xabc"]) == (b"xa", "bc")
    # What completes while waiting does not take the place of what began before it.
    assert run(["bc", "abcdx", "d", "bcd"], [b"abcde"]) == (b"a", "bc")


def test_empty_strings_are_ignored() -> None:
    assert run(["", ""], [b"text"]) == (b"text", None)


def test_characters_of_several_bytes_and_lone_surrogates() -> None:
    assert run(["é"], [b"caf", "é".encode()[:1], "é".encode()[1:], b"!"]) == (b"caf", "é")
    assert run(["\ud800"], [b"text"]) == (b"text", None)


def test_a_held_tail_comes_out_at_the_end() -> None:
    assert run(["</done>"], [b"1 </don"]) == (b"1 </don", None)
