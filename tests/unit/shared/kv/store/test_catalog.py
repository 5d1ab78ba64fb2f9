"""The index of a directory: what it finds, and what it does not read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.errors import DamagedFile
from shared.kv.files.cache_file import CacheFile, cache_name, read_cache_file
from shared.kv.files.cache_writer import touch
from shared.kv.store import catalog as catalog_module
from shared.kv.store.catalog import Catalog
from tests.support.cache_builder import cache_bytes, put_cache_file

MINUTE_NS = 60_000_000_000


class Reads:
    """Counts the headers that are read and the directories that are scanned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.headers = self.scans = 0
        scandir = os.scandir

        def count_header(path: Path) -> CacheFile:
            self.headers += 1
            return read_cache_file(path)

        def count_scan(path: Path) -> object:
            self.scans += 1
            return scandir(path)

        monkeypatch.setattr(catalog_module, "read_cache_file", count_header)
        monkeypatch.setattr(catalog_module.os, "scandir", count_scan)

    def take(self) -> tuple[int, int]:
        """(headers, scans) since the last call."""
        counted, self.headers, self.scans = (self.headers, self.scans), 0, 0
        return counted


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def _settled(folder: Path) -> Catalog:
    """A catalog whose clock says that nothing in the directory is fresh."""
    return Catalog(folder, wall_ns=lambda: folder.stat().st_mtime_ns + MINUTE_NS)


def _texts(catalog: Catalog, rendered: bytes) -> list[int]:
    return [file.text_bytes for file in catalog.prefixes_of(rendered)]


def test_beginnings_of_a_prompt_longest_first(tmp_path: Path) -> None:
    for text in (b"A", b"A+B", b"A+B+X", b"A+B+C+D"):
        put_cache_file(tmp_path, text, payload=b"")
    catalog = _settled(tmp_path)
    assert catalog.refresh() == []
    assert _texts(catalog, b"A+B+C") == [3, 1]
    assert _texts(catalog, b"A+B") == [3, 1]
    assert _texts(catalog, b"a+B+C") == []
    assert _texts(catalog, b"") == []
    assert len(catalog.files) == 4


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_many_files_are_read_once(tmp_path: Path, reads: Reads, count: int) -> None:
    texts = [b"%d " % number * (1 + number % 50) for number in range(count)]
    for text in texts:
        put_cache_file(tmp_path, text, payload=b"")
    catalog = _settled(tmp_path)
    catalog.refresh()
    assert reads.take() == (count, 1)
    for text in texts[:100]:
        assert catalog.refresh() == []
        assert _texts(catalog, text + b"and more")[0] == len(text)
    assert reads.take() == (0, 0)
    put_cache_file(tmp_path, b"one more", payload=b"")
    catalog.refresh()
    assert reads.take() == (1, 1)
    assert _texts(catalog, b"one more and") == [8]


def test_only_what_changed_is_read_again(tmp_path: Path, reads: Reads) -> None:
    paths = [put_cache_file(tmp_path, text, payload=b"") for text in (b"one", b"two", b"three")]
    catalog = _settled(tmp_path)
    catalog.refresh()
    paths[0].unlink()
    paths[1].unlink()
    put_cache_file(tmp_path, b"two", payload=b"", hits=9)
    reads.take()
    catalog.refresh()
    assert reads.take() == (1, 1)
    hits = {file.name: file.header.hits for file in catalog.files}
    assert hits == {cache_name(b"two"): 9, cache_name(b"three"): 0}


def test_a_directory_that_just_changed_is_not_trusted(tmp_path: Path, reads: Reads) -> None:
    now = 1_700_000_000_000_000_000
    catalog = Catalog(tmp_path, wall_ns=lambda: now + 1_000_000_000)
    put_cache_file(tmp_path, b"one", payload=b"")
    os.utime(tmp_path, ns=(now, now))
    catalog.refresh()
    put_cache_file(tmp_path, b"two", payload=b"")
    os.utime(tmp_path, ns=(now, now))
    catalog.refresh()
    assert len(catalog.files) == 2
    assert reads.take() == (2, 2)


def test_own_writes_need_no_reading(tmp_path: Path, reads: Reads) -> None:
    path = put_cache_file(tmp_path, b"one", payload=b"")
    catalog = _settled(tmp_path)
    catalog.refresh()
    catalog.update(touch(read_cache_file(path), 1_700_000_007))
    found = catalog.get(path.name)
    assert found is not None
    assert (found.header.hits, found.header.last_used) == (1, 1_700_000_007)
    os.utime(tmp_path, ns=(1, 1))
    reads.take()
    catalog.refresh()
    assert reads.take() == (0, 1)
    assert catalog.get(path.name) == found


def test_gone_files_are_forgotten(tmp_path: Path) -> None:
    path = put_cache_file(tmp_path, b"one", payload=b"")
    file = read_cache_file(path)
    catalog = _settled(tmp_path)
    catalog.refresh()
    path.unlink()
    catalog.update(file)
    assert catalog.get(path.name) is None
    assert _texts(catalog, b"one") == []


def test_a_file_that_vanishes_between_scan_and_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_cache_file(tmp_path, b"one", payload=b"")

    def vanish(path: Path) -> CacheFile:
        path.unlink()
        return read_cache_file(path)

    monkeypatch.setattr(catalog_module, "read_cache_file", vanish)
    catalog = _settled(tmp_path)
    assert catalog.refresh() == []
    assert not catalog.files


def test_names_in_upper_case_are_found(tmp_path: Path) -> None:
    path = put_cache_file(tmp_path, b"one", payload=b"")
    path.rename(tmp_path / (path.stem.upper() + ".kv"))
    catalog = _settled(tmp_path)
    catalog.refresh()
    assert _texts(catalog, b"one") == [3]


@pytest.mark.parametrize("fields", [{"abi": 0}, {"abi": 3}])
def test_other_versions_are_foreign(tmp_path: Path, fields: dict[str, int]) -> None:
    path = put_cache_file(tmp_path, b"one", **fields)
    catalog = _settled(tmp_path)
    assert catalog.refresh() == []
    assert not catalog.files
    assert catalog.is_foreign(path.name)


def test_what_is_no_cache_file_is_foreign(tmp_path: Path) -> None:
    names = [cache_name(text) for text in (b"empty", b"zeros", b"version")]
    for name, content in zip(names, [b"", bytes(100), b"KVC\x02" + bytes(100)], strict=True):
        (tmp_path / name).write_bytes(content)
    (tmp_path / cache_name(b"folder")).mkdir()
    (tmp_path / cache_name(b"link")).symlink_to(tmp_path / names[0])
    (tmp_path / "sysprompt.kv").write_bytes(cache_bytes(b"text", b"", tokens=1))
    catalog = _settled(tmp_path)
    assert catalog.refresh() == []
    assert not catalog.files
    assert all(catalog.is_foreign(name) for name in names)


def test_damage_is_reported_once(tmp_path: Path, reads: Reads) -> None:
    path = put_cache_file(tmp_path, b"one")
    path.write_bytes(path.read_bytes()[:-1])
    catalog = _settled(tmp_path)
    (damaged,) = catalog.refresh()
    assert damaged.path == path
    with pytest.raises(DamagedFile) as raised:
        read_cache_file(path)
    assert damaged.why == str(raised.value)
    assert not catalog.is_foreign(path.name)
    os.utime(tmp_path, ns=(1, 1))
    assert catalog.refresh() == []
    assert not catalog.files


@pytest.mark.parametrize("at", [48, 40])
def test_lengths_without_end_are_damage(tmp_path: Path, at: int) -> None:
    path = put_cache_file(tmp_path, b"one")
    content = bytearray(path.read_bytes())
    length = 4 if at == 48 else 8
    content[at : at + length] = (2**40 if length == 8 else 2**32 - 1).to_bytes(length, "little")
    path.write_bytes(content)
    assert len(_settled(tmp_path).refresh()) == 1


def test_a_link_is_no_file_of_the_store(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    path = put_cache_file(elsewhere, b"one")
    (folder / path.name).symlink_to(path)
    catalog = _settled(folder)
    assert catalog.refresh() == []
    assert not catalog.files


def test_a_text_length_that_cannot_be_the_names(tmp_path: Path) -> None:
    (tmp_path / cache_name(b"ab")).write_bytes(cache_bytes(b"a", b"", tokens=10))
    put_cache_file(tmp_path, b"zz", payload=b"")
    catalog = _settled(tmp_path)
    catalog.refresh()
    assert _texts(catalog, b"ab") == []


def test_a_change_of_our_own_needs_no_scan(tmp_path: Path, reads: Reads) -> None:
    age = 0
    catalog = Catalog(tmp_path, wall_ns=lambda: tmp_path.stat().st_mtime_ns + age)
    one, two = (put_cache_file(tmp_path, text, payload=b"") for text in (b"one", b"two"))
    (tmp_path / cache_name(b"folder")).mkdir()
    catalog.refresh()
    reads.take()
    catalog.begin_change()
    three = put_cache_file(tmp_path, b"three", payload=b"")
    assert catalog.refresh() == [], "not while it is in work"
    assert reads.take() == (0, 0)
    catalog.update(read_cache_file(three))
    one.unlink()
    catalog.forget(one.name)
    catalog.end_change()
    reads.take()
    age = MINUTE_NS
    catalog.refresh()
    assert reads.take() == (0, 0)
    assert {file.name for file in catalog.files} == {two.name, three.name}


def test_what_others_do_right_after_a_change_of_our_own_is_found(tmp_path: Path) -> None:
    changed = now = 1_700_000_000_000_000_000
    catalog = Catalog(tmp_path, wall_ns=lambda: now)
    catalog.refresh()
    catalog.begin_change()
    catalog.update(read_cache_file(put_cache_file(tmp_path, b"ours", payload=b"")))
    os.utime(tmp_path, ns=(changed, changed))
    catalog.end_change()
    now += MINUTE_NS
    put_cache_file(tmp_path, b"theirs", payload=b"")
    os.utime(tmp_path, ns=(changed, changed))
    catalog.refresh()
    assert len(catalog.files) == 2


@pytest.mark.parametrize("comes", [True, False])
def test_what_others_do_during_a_change_of_our_own_is_found_afterwards(
    tmp_path: Path, reads: Reads, comes: bool
) -> None:
    other = put_cache_file(tmp_path, b"other", payload=b"")
    catalog = _settled(tmp_path)
    catalog.refresh()
    catalog.begin_change()
    catalog.begin_change()
    catalog.update(read_cache_file(put_cache_file(tmp_path, b"ours", payload=b"")))
    if comes:
        put_cache_file(tmp_path, b"another", payload=b"")
    else:
        other.unlink()
    catalog.end_change()
    catalog.refresh()
    assert len(catalog.files) == 2, "one change is still in work"
    catalog.end_change()
    catalog.refresh()
    assert len(catalog.files) == (3 if comes else 1)


@pytest.mark.parametrize(
    ("modified", "age_ms", "trusted"), [(0, 1900, False), (0, 2100, True), (7, 99, False), (7, 101, True)]
)
def test_how_long_a_directory_time_is_not_trusted(
    tmp_path: Path, reads: Reads, modified: int, age_ms: int, trusted: bool
) -> None:
    modified += 1_700_000_000_000_000_000
    catalog = Catalog(tmp_path, wall_ns=lambda: modified + age_ms * 1_000_000)
    os.utime(tmp_path, ns=(modified, modified))
    catalog.refresh()
    catalog.refresh()
    assert reads.take() == (0, 1 if trusted else 2)
