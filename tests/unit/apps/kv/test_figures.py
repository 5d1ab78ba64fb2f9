"""Sizes, ages and texts as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.kv.figures import age_text, hex_rows, one_line, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_943_268, "1.9 MiB"), (5 << 40, "5120.0 GiB")],
)
def test_sizes(count, text):
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("then", "text"),
    [
        (0, "never"),
        (999_999, "just now"),
        (999_940, "1 min ago"),
        (999_939, "1 min ago"),
        (1_000_000 - 3600, "1 h ago"),
        (1_000_000 - 86400 * 2, "2 d ago"),
        (1_000_001, "in the future"),
        (2**63, "in the future"),
    ],
)
def test_ages(then, text):
    assert age_text(then, 1_000_000.0) == text


@given(st.binary(max_size=100), st.integers(1, 40))
def test_one_line_is_one_line_of_printable_characters(content, width):
    line = one_line(content, width)
    assert len(line) <= width
    assert line.isprintable()


def test_one_line_keeps_what_can_be_shown():
    assert one_line("  a\n\tb\x1b[31m è 世 ".encode(), 80) == "a b�[31m è 世"
    assert one_line(b"abcdef", 4) == "abc…"


def test_hex_rows():
    assert hex_rows(bytes(range(18))) == ["00010203 04050607 08090a0b 0c0d0e0f", "1011"]
