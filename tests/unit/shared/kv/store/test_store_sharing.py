"""Several stores on one directory, and a directory that changes under a store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from shared.errors import StoreUnavailable
from shared.kv.files.cache_file import cache_name
from shared.kv.files.header import Reason
from shared.kv.store.catalog import Catalog, Damaged
from shared.kv.store.directory import LOCK, MARKER
from tests.support.cache_builder import put_cache_file
from tests.support.cache_files import cache_file
from tests.support.golden import cache_folder
from tests.support.stores import MODEL, OpenStore, stored_texts

A, B = b"a" * 40, b"b" * 40
# Opens the directory like a second server would, reports, and holds it until its input ends.
SECOND = (
    "import sys\n"
    "from pathlib import Path\n"
    "from tests.support.stores import OpenStore\n"
    "one = OpenStore(Path(sys.argv[1]))\n"
    "print(one.store.read_only, one.ask(b'a' * 50) == b'a' * 40, one.save(b'b' * 40).stored, flush=True)\n"
    "sys.stdin.readline()\n"
    "print(one.save(b'b' * 40).stored, one.store.read_only, flush=True)\n"
    "one.store.close()\n"
)


def test_a_second_process_reads_until_the_first_one_ends(tmp_path: Path) -> None:
    first = OpenStore(tmp_path)
    assert not first.store.read_only
    first.save(A)
    before = (tmp_path / cache_name(A)).read_bytes()
    command = [sys.executable, "-c", SECOND, str(tmp_path)]
    root = Path(__file__).parents[5]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as second:
        assert second.stdout is not None
        assert second.stdin is not None
        assert second.stdout.readline() == "True True False\n"
        assert (tmp_path / cache_name(A)).read_bytes() == before, "not even a hit is counted"
        first.store.close()
        second.stdin.write("\n")
        second.stdin.flush()
        assert second.stdout.readline() == "True False\n"
    assert stored_texts(tmp_path) == {A, B}


def test_own_saves_and_evictions_look_at_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OpenStore(tmp_path, budget_bytes=500_000)
    one.save(A)
    scans: list[Catalog] = []
    scan = Catalog._scan

    def count(catalog: Catalog) -> list[Damaged]:
        scans.append(catalog)
        return scan(catalog)

    monkeypatch.setattr(Catalog, "_scan", count)
    for number in range(8):
        text = b"%d" % number * 40
        assert one.save(text, Reason.EVICT).stored
        assert one.ask(text + B) == text
    assert one.lines("kv evicted")
    assert not scans
    put_cache_file(tmp_path, B, tokens=40, context=512)
    assert one.store.find(B, 512)
    assert scans
    one.store.close()


def test_files_of_another_process_are_found(tmp_path: Path) -> None:
    writer, reader = OpenStore(tmp_path), OpenStore(tmp_path)
    assert reader.ask(A) == b""
    writer.save(A)
    assert reader.ask(A) == A
    for one in (reader, writer):
        one.store.close()


def test_a_reader_finishes_what_the_writer_removed(tmp_path: Path) -> None:
    writer, reader = OpenStore(tmp_path), OpenStore(tmp_path)
    writer.save(A)
    (file,) = reader.store.find(A, 512)
    file.path.unlink()
    assert reader.ask(A) == b""
    for one in (reader, writer):
        one.store.close()


def test_another_model_file_needs_another_directory(tmp_path: Path) -> None:
    OpenStore(tmp_path).store.close()
    with pytest.raises(StoreUnavailable):
        OpenStore(tmp_path, model=replace(MODEL, fingerprint="cd" * 32))


def test_files_of_the_c_engine_are_adopted(tmp_path: Path) -> None:
    for path in cache_folder().glob("*.kv"):
        shutil.copy(path, tmp_path)
    one = OpenStore(tmp_path)
    assert (tmp_path / MARKER).exists()
    found = one.store.find(cache_file("shutdown").text + b"and on", 2048)
    assert found[0].header.tokens == 746
    assert one.store.contents()[0] == 2
    one.store.close()


def test_leftovers_go_at_the_start(tmp_path: Path) -> None:
    leftover = tmp_path / f"{cache_name(A)}.tmp.4294967295"
    leftover.write_bytes(b"half")
    OpenStore(tmp_path).store.close()
    assert not leftover.exists()


def test_leftovers_stay_while_another_writes(tmp_path: Path) -> None:
    writer = OpenStore(tmp_path)
    leftover = tmp_path / f"{cache_name(A)}.tmp.4294967295"
    leftover.write_bytes(b"half")
    reader = OpenStore(tmp_path)
    assert leftover.exists()
    for one in (reader, writer):
        one.store.close()


def test_a_directory_that_was_removed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    one = OpenStore(folder)
    one.save(A)
    shutil.rmtree(folder)
    assert one.ask(A) == b""
    assert one.save(B).stored
    assert one.ask(B) == B
    assert stored_texts(folder) == {B}
    assert (folder / LOCK).exists()
    one.store.close()


def test_a_place_that_cannot_be_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    one = OpenStore(folder)
    shutil.rmtree(folder)
    folder.write_bytes(b"a file now")
    saved = one.save(A)
    assert not saved.stored
    assert "choose another directory" in saved.why
    one.store.close()


def test_a_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        one = OpenStore(tmp_path)
        assert one.save(A).stored
    assert stored_texts(tmp_path) == {A}
    one.store.close()


def test_what_stands_in_the_way_is_said_once(tmp_path: Path) -> None:
    first, second = OpenStore(tmp_path), OpenStore(tmp_path)
    for text in (A, B, A):
        assert second.save(text).why == "another process writes to this directory"
    assert len(second.lines("kv skipped")) == 1
    first.store.close()
    assert second.save(A).stored
    # From here on the other one is in the way of nobody; files may be.
    paths = [put_cache_file(tmp_path, text * 40, abi=3) for text in (b"c", b"d")]
    for _ in range(2):
        for text in (b"c", b"d"):
            assert second.save(text * 40).why == "a file of another version has the same name"
    assert len(second.lines("kv skipped")) == 3
    paths[0].unlink()
    assert second.save(b"c" * 40).stored
    paths[0].unlink()
    second.store.find(A, 512)
    put_cache_file(tmp_path, b"c" * 40, abi=3)
    assert not second.save(b"c" * 40).stored
    assert len(second.lines("kv skipped")) == 4
    second.store.close()


def test_a_writer_that_comes_back_is_said_again(tmp_path: Path) -> None:
    store = OpenStore(tmp_path)
    for _ in range(2):
        # The directory is another one, and somebody was faster to take it.
        shutil.rmtree(tmp_path)
        other = OpenStore(tmp_path)
        assert not store.save(A).stored
        assert not store.save(A).stored
        other.store.close()
        assert store.save(A).stored
    assert len(store.lines("kv skipped")) == 2
    store.store.close()
