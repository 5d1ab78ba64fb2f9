"""Entries of several turns in one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.trace_pages import Pages
from apps.trace import TraceFile


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40))
def test_each_stays_in_one_piece_and_the_first_is_written_at_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("pages") / "trace"
    with TraceFile(path, say=pytest.fail) as file:
        pages = Pages(file)
        opened = {number: pages.open() for number in range(5)}
        texts = dict.fromkeys(opened, "")
        for number, ends in steps:
            if opened[number].closed:
                continue
            texts[number] += str(number)
            opened[number].write(str(number))
            if ends:
                opened[number].close()
            first = next((n for n, page in opened.items() if not page.closed), 5)
            assert path.read_text() == "".join(texts[n] for n in range(min(first + 1, 5)))


def test_nothing_is_held_for_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace", say=pytest.fail)
    pages = Pages(file)
    first, second = pages.open(), pages.open()
    file.close()
    second.write("text")
    assert not second.held
    second.close()
    first.close()
