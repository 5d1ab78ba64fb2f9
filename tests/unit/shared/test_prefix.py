"""The common prefix of two token lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.prefix import common_bytes, common_prefix

TOKENS = st.lists(st.integers(0, 2), max_size=40)


@given(TOKENS, TOKENS, TOKENS)
def test_it_counts_equal_leading_tokens(shared: list[int], left: list[int], right: list[int]) -> None:
    left, right = shared + left, shared + right
    equal = [a == b for a, b in zip(left, right, strict=False)]
    assert common_prefix(left, right) == [*equal, False].index(False)


def test_any_kind_of_sequence_will_do() -> None:
    assert common_prefix((1, 2, 3), [1, 2, 4]) == 2
    assert common_prefix(range(5), [0, 1, 2]) == 3


@given(TOKENS, TOKENS, TOKENS)
def test_bytes_are_counted_alike(shared: list[int], left: list[int], right: list[int]) -> None:
    left, right = shared + left, shared + right
    assert common_bytes(bytes(left), bytes(right)) == common_prefix(left, right)
