from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import DamagedFile, ForeignFile
from shared.kv.files import cache_writer
from shared.kv.files.cache_file import TEXT_AT, cache_name, read_cache_file
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.cache_writer import replace_trailer, touch, write_cache_file
from shared.kv.files.checksum import read_sidecar, sidecar_path
from shared.kv.files.header import Extension, Header
from shared.kv.files.trailers import encode_title, encode_tool_map
from tests.support.cache_contents import HEADER, NAME, NOW, OTHER_PAYLOAD, PAYLOAD, TEXT, written
from tests.support.kv_checker import check_cache_bytes
from tests.support.kv_vectors import MINIMAL, STRIPPED, TOOL_BLOCK, TOOL_ID, WITH_TOOL_MAP, Vector

TRAILERS = {
    MINIMAL.name: b"",
    WITH_TOOL_MAP.name: encode_tool_map({TOOL_ID: TOOL_BLOCK}),
    STRIPPED.name: encode_title(b"Hello world"),
}


@pytest.mark.parametrize("vector", [MINIMAL, WITH_TOOL_MAP, STRIPPED])
def test_known_files(tmp_path: Path, vector: Vector) -> None:
    header = Header.decode(vector.content)
    text_end = TEXT_AT + vector.content[48]
    payload = vector.content[text_end : text_end + header.payload_bytes]
    path = tmp_path / vector.name
    file = write_cache_file(path, header, vector.content[TEXT_AT:text_end], [payload], TRAILERS[path.name])
    assert path.read_bytes() == vector.content
    assert hashlib.sha1(path.read_bytes()).hexdigest() == vector.sha1
    assert file == read_cache_file(path)


@given(
    text=st.binary(max_size=300),
    chunks=st.lists(st.binary(max_size=200), max_size=5),
    blocks=st.dictionaries(st.text(min_size=1, max_size=20), st.binary(min_size=1, max_size=50), max_size=3),
)
def test_what_is_written_is_a_proper_file_and_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, chunks: list[bytes], blocks: dict[str, bytes]
) -> None:
    path = tmp_path_factory.mktemp("kv") / cache_name(text)
    flags = Extension.TOOL_MAP if blocks else Extension(0)
    header = replace(HEADER, payload_bytes=sum(map(len, chunks)), extensions=flags)
    file = write_cache_file(path, header, text, chunks, encode_tool_map(blocks), durable=False)
    assert check_cache_bytes(path.read_bytes(), path.name) == []
    with open_cache_file(path) as reader:
        assert reader.file == file
        assert reader.text() == text
        assert reader.payload().read() == b"".join(chunks)
        assert reader.verify_checksum() is True
        assert reader.tool_map() == blocks


def test_chunks_may_be_views_of_other_numbers(tmp_path: Path) -> None:
    numbers = np.arange(1000, dtype="<f4")
    path = tmp_path / NAME
    header = replace(HEADER, payload_bytes=4000)
    write_cache_file(path, header, TEXT, [numbers.data[:300], numbers.data[300:]])
    assert path.read_bytes().endswith(numbers.tobytes())
    with open_cache_file(path) as reader:
        assert reader.verify_checksum() is True


@pytest.mark.parametrize("length", [0, len(PAYLOAD) - 1, len(PAYLOAD) + 1])
def test_another_payload_than_announced_leaves_the_old_file(tmp_path: Path, length: int) -> None:
    file = written(tmp_path)
    before = file.path.read_bytes()
    with pytest.raises(ValueError, match="payload bytes but there are"):
        write_cache_file(file.path, HEADER, TEXT, [(PAYLOAD + b"x")[:length]])
    assert file.path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [NAME, f"{NAME}.sum"]
    assert read_sidecar(file.path)


def test_a_payload_that_runs_over_is_not_drawn_to_its_end(tmp_path: Path) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield PAYLOAD

    with pytest.raises(ValueError, match="are more"):
        write_cache_file(tmp_path / NAME, HEADER, TEXT, endless())
    assert list(tmp_path.iterdir()) == []


def test_parts_that_no_reader_takes_are_refused(tmp_path: Path) -> None:
    both = replace(HEADER, extensions=Extension.TOOL_MAP | Extension.TITLE)
    with pytest.raises(ValueError, match="title must follow"):
        write_cache_file(tmp_path / NAME, both, TEXT, [PAYLOAD])
    file = written(tmp_path)
    before = file.path.read_bytes()
    with pytest.raises(ValueError, match="title must follow"):
        replace_trailer(file, b"", Extension.TOOL_MAP | Extension.TITLE, NOW)
    assert file.path.read_bytes() == before


def test_without_a_checksum_an_old_sidecar_goes(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert read_sidecar(file.path)
    written(tmp_path, OTHER_PAYLOAD, checksum=False)
    assert not sidecar_path(file.path).exists()


def test_the_old_sidecar_is_gone_before_the_new_file_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path)
    seen: list[bool] = []
    rename = Path.replace

    def replace_path(self: Path, target: Path) -> Path:
        if target == file.path:
            seen.append(sidecar_path(file.path).exists())
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace_path)
    written(tmp_path, OTHER_PAYLOAD)
    assert seen == [False]
    with open_cache_file(file.path) as reader:
        assert reader.verify_checksum() is True


def test_a_sidecar_that_cannot_be_written_does_not_lose_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_writer, "write_sidecar", full)
    file = written(tmp_path)
    assert read_cache_file(file.path) == file


@pytest.mark.parametrize(("durable", "flushes"), [(True, 2), (False, 0)])
def test_flushes_file_and_directory_when_it_must_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, flushes: int
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    write_cache_file(tmp_path / NAME, HEADER, TEXT, [PAYLOAD], durable=durable)
    assert len(flushed) == flushes


def test_a_hit_changes_two_fields_and_nothing_else(tmp_path: Path) -> None:
    flags = Extension.TOOL_MAP | Extension(0x40)
    file = written(tmp_path, trailer=encode_tool_map({"a": b"x"}), extensions=flags, hits=3)
    before = bytearray(file.path.read_bytes())
    touched = touch(file, NOW + 99.9)
    before[12:16] = (4).to_bytes(4, "little")
    before[32:40] = (NOW + 99).to_bytes(8, "little")
    assert file.path.read_bytes() == before
    assert touched == read_cache_file(file.path)
    with open_cache_file(file.path) as reader:
        assert reader.verify_checksum() is True


def test_hits_are_counted_from_what_the_file_says_now(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert touch(file, NOW).header.hits == 1
    assert touch(file, NOW).header.hits == 2
    full = written(tmp_path, hits=2**32 - 1)
    assert touch(full, NOW).header.hits == 2**32 - 1


def test_a_file_that_is_gone_or_no_longer_ours_is_not_touched(tmp_path: Path) -> None:
    file = written(tmp_path)
    foreign = b"KVC\2" + file.path.read_bytes()[4:]
    file.path.write_bytes(foreign)
    with pytest.raises(ForeignFile):
        touch(file, NOW)
    with pytest.raises(ForeignFile):
        replace_trailer(file, b"x", Extension(0), NOW)
    assert file.path.read_bytes() == foreign
    file.path.write_bytes(b"KVC\1" + foreign[4:-1])
    with pytest.raises(DamagedFile):
        touch(file, NOW)
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        touch(file, NOW)
    assert not file.path.exists()


@given(
    first=st.dictionaries(st.text(min_size=1, max_size=9), st.binary(min_size=1, max_size=40), max_size=4),
    second=st.dictionaries(st.text(min_size=1, max_size=9), st.binary(min_size=1, max_size=40), max_size=4),
)
def test_a_trailer_is_exchanged_in_place(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, bytes], second: dict[str, bytes]
) -> None:
    directory = tmp_path_factory.mktemp("kv")
    flags = Extension.TOOL_MAP if first else Extension(0)
    file = written(directory, trailer=encode_tool_map(first), extensions=flags, hits=5)
    inode = file.path.stat().st_ino
    trailer = encode_tool_map(second)
    changed = replace_trailer(file, trailer, Extension.TOOL_MAP if second else Extension(0), NOW + 5)
    assert file.path.stat().st_ino == inode
    assert changed == read_cache_file(file.path)
    assert changed.header == replace(file.header, extensions=changed.header.extensions, last_used=NOW + 5)
    assert check_cache_bytes(file.path.read_bytes(), NAME) == []
    with open_cache_file(file.path) as reader:
        assert reader.tool_map() == second
        assert reader.verify_checksum() is True
