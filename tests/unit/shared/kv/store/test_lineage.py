"""Which cold files several conversations go on from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kv.files.cache_file import CacheFile, cache_name, read_cache_file
from shared.kv.files.cache_reader import CacheReader
from shared.kv.store import lineage as lineage_module
from shared.kv.store.lineage import Lineage
from tests.support.cache_builder import put_cache_file

CONTINUED = 2


def _files(folder: Path, cold: list[bytes], continued: list[bytes]) -> list[CacheFile]:
    for text in cold:
        put_cache_file(folder, text, payload=b"")
    for text in continued:
        put_cache_file(folder, text, payload=b"", reason=CONTINUED)
    return [read_cache_file(path) for path in sorted(folder.glob("*.kv"))]


def _branches(folder: Path, cold: list[bytes], continued: list[bytes]) -> dict[bytes, int]:
    counted = Lineage().branches(_files(folder, cold, continued))
    assert set(counted) == {cache_name(text) for text in cold}
    return {text: counted[cache_name(text)] for text in cold}


def test_a_file_that_nothing_continues(tmp_path: Path) -> None:
    assert _branches(tmp_path, [b"base"], [b"other text", b"bas"]) == {b"base": 0}


def test_one_growing_conversation_is_one_way(tmp_path: Path) -> None:
    assert _branches(tmp_path, [b"base"], [b"base a", b"base a b", b"base a b c"]) == {b"base": 1}


def test_two_conversations_are_two_ways(tmp_path: Path) -> None:
    assert _branches(tmp_path, [b"base"], [b"base a", b"base b longer", b"base a and on"]) == {b"base": 2}


def test_equally_long_conversations(tmp_path: Path) -> None:
    assert _branches(tmp_path, [b"base", b"base a"], [b"base b"]) == {b"base": 2, b"base a": 0}


def test_continued_files_are_no_anchors(tmp_path: Path) -> None:
    assert _branches(tmp_path, [], [b"base", b"base a", b"base b"]) == {}


def test_texts_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def count(path: Path) -> CacheReader:
        opened.append(path.name)
        return open_cache_file(path)

    open_cache_file = lineage_module.open_cache_file
    monkeypatch.setattr(lineage_module, "open_cache_file", count)
    lineage = Lineage()
    files = _files(tmp_path, [b"base"], [b"base a", b"base b"])
    expected = lineage.branches(files)
    assert opened
    opened.clear()
    assert lineage.branches(files) == expected
    assert opened == []


def test_a_file_that_vanished_counts_for_nothing(tmp_path: Path) -> None:
    files = _files(tmp_path, [b"base"], [b"base a", b"base b"])
    (tmp_path / cache_name(b"base b")).unlink()
    assert Lineage().branches(files) == {cache_name(b"base"): 1}


# Every beginning of these has the same last bytes, so that only its hash tells.
_NESTED = st.sampled_from(
    [
        b"".join(b"%d--------" % letter for letter in letters)
        for length in range(1, 5)
        for letters in product((0, 1), repeat=length)
    ]
)


@given(st.lists(st.dictionaries(_NESTED, st.booleans(), max_size=12), min_size=2, max_size=4))
@settings(max_examples=60, deadline=None)
def test_whatever_comes_and_goes_is_counted_as_if_seen_for_the_first_time(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[bytes, bool]]
) -> None:
    folder, lineage = tmp_path_factory.mktemp("store"), Lineage()
    for texts in rounds:
        for path in folder.glob("*.kv"):
            path.unlink()
        cold = [text for text, is_cold in texts.items() if is_cold]
        counted = lineage.branches(_files(folder, cold, [text for text in texts if text not in cold]))
        assert counted == {cache_name(text): _ways(text, texts.keys()) for text in cold}


def _ways(beginning: bytes, texts: Iterable[bytes]) -> int:
    family = sorted((text for text in texts if text.startswith(beginning) and text != beginning), key=len)
    chained = all(longer.startswith(text) for text, longer in pairwise(family))
    return min(len(family), 1) if chained else 2


def test_only_what_is_new_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    names = lineage_module._names

    def count(file: CacheFile, lengths: Iterable[int]) -> dict[int, str] | None:
        read.append(file.name)
        return names(file, lengths)

    monkeypatch.setattr(lineage_module, "_names", count)
    lineage = Lineage()
    lineage.branches(_files(tmp_path, [b"base"], [b"other %d" % number for number in range(30, 50)]))
    assert read == []
    assert (
        lineage.branches(_files(tmp_path, [b"other 31"], [b"other 31, more"]))[cache_name(b"other 31")] == 1
    )
    assert set(read) == {cache_name(b"other 31, more")}
