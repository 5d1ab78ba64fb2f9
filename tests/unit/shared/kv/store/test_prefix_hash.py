"""Names for beginnings of a text equal those of hashing each beginning on its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.kv.files.cache_file import cache_name
from shared.kv.store.prefix_hash import prefix_names


@given(text=st.binary(max_size=300), lengths=st.lists(st.integers(0, 400)))
def test_each_length_that_the_text_has(text: bytes, lengths: list[int]) -> None:
    lengths.sort()
    expected = [(length, cache_name(text[:length])) for length in lengths if length <= len(text)]
    assert list(prefix_names(text, lengths)) == expected


def test_published_hashes() -> None:
    assert list(prefix_names(b"abcd", [0, 3])) == [
        (0, "da39a3ee5e6b4b0d3255bfef95601890afd80709.kv"),
        (3, "a9993e364706816aba3e25717850c26c9cd0d89d.kv"),
    ]
