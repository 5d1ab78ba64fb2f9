from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import DamagedFile, ForeignFile
from shared.kv.files.cache_file import cache_name, is_cache_name, read_cache_file
from tests.support.kv_vectors import MINIMAL, STRIPPED, VECTORS, WITH_TOOL_MAP, Vector


def written(directory: Path, vector: Vector, content: bytes | None = None) -> Path:
    path = directory / vector.name
    path.write_bytes(vector.content if content is None else content)
    return path


def test_names() -> None:
    assert cache_name(b"abc") == "a9993e364706816aba3e25717850c26c9cd0d89d.kv"
    assert cache_name(b"") == "da39a3ee5e6b4b0d3255bfef95601890afd80709.kv"


@given(text=st.binary())
def test_every_name_passes_the_filter(text: bytes) -> None:
    assert is_cache_name(cache_name(text))
    assert is_cache_name(cache_name(text)[:-3].upper() + ".kv")


@pytest.mark.parametrize(
    "name",
    [
        "sysprompt.kv",
        "a9993e364706816aba3e25717850c26c9cd0d89d",
        "a9993e364706816aba3e25717850c26c9cd0d89d.KV",
        "a9993e364706816aba3e25717850c26c9cd0d89.kv",
        "a9993e364706816aba3e25717850c26c9cd0d89d0.kv",
        "g9993e364706816aba3e25717850c26c9cd0d89d.kv",
        "a9993e364706816aba3e25717850c26c9cd0d89d.kv.sum",
        "a9993e364706816aba3e25717850c26c9cd0d89d.kv.tmp.123",
        "a9993e364706816aba3e25717850c26c9cd0d89d.kv\n",
        "٠9993e364706816aba3e25717850c26c9cd0d89d.kv",
    ],
)
def test_other_names_do_not(name: str) -> None:
    assert not is_cache_name(name)


@pytest.mark.parametrize(
    ("vector", "text_bytes", "payload_at", "trailer_at"),
    [(MINIMAL, 3, 55, 55), (WITH_TOOL_MAP, 26, 78, 83), (STRIPPED, 24, 76, 76)],
)
def test_where_the_parts_are(
    tmp_path: Path, vector: Vector, text_bytes: int, payload_at: int, trailer_at: int
) -> None:
    file = read_cache_file(written(tmp_path, vector))
    assert (file.text_bytes, file.payload_at, file.trailer_at) == (text_bytes, payload_at, trailer_at)
    assert file.size == len(vector.content)
    assert file.name == vector.name


def test_names_are_folded_to_lower_case(tmp_path: Path) -> None:
    path = tmp_path / (MINIMAL.name[:-3].upper() + ".kv")
    path.write_bytes(MINIMAL.content)
    file = read_cache_file(path)
    assert file.path == path
    assert file.name == MINIMAL.name


@pytest.mark.parametrize("vector", VECTORS)
def test_a_file_cut_before_its_trailer_is_damaged(tmp_path: Path, vector: Vector) -> None:
    end = read_cache_file(written(tmp_path, vector)).trailer_at
    for cut in range(end):
        path = written(tmp_path, vector, vector.content[:cut])
        with pytest.raises(ForeignFile if cut <= 20 else DamagedFile, match=vector.name):
            read_cache_file(path)
    for cut in range(end, len(vector.content)):
        assert read_cache_file(written(tmp_path, vector, vector.content[:cut])).size == cut


@pytest.mark.parametrize("payload", [2**40, 2**63, 2**64 - 1])
@pytest.mark.parametrize("text", [3, 2**32 - 1])
def test_giant_lengths_are_damage_and_cost_no_memory(tmp_path: Path, payload: int, text: int) -> None:
    content = bytearray(MINIMAL.content)
    struct.pack_into("<QI", content, 40, payload, text)
    path = written(tmp_path, MINIMAL, bytes(content))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFile, match="has 55 bytes of"):
            read_cache_file(path)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_says_where_a_file_is_cut_off(tmp_path: Path) -> None:
    for cut, where in ((47, "within its header"), (51, "before its text"), (54, "has 54 bytes of 55")):
        with pytest.raises(DamagedFile, match=where):
            read_cache_file(written(tmp_path, MINIMAL, MINIMAL.content[:cut]))


def test_missing_files_and_older_ones(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_cache_file(tmp_path / MINIMAL.name)
    older = bytearray(MINIMAL.content)
    older[20] = 0
    path = written(tmp_path, MINIMAL, bytes(older))
    with pytest.raises(ForeignFile, match="ABI 0 cannot be resumed"):
        read_cache_file(path)
    assert read_cache_file(path, any_abi=True).header.payload_abi == 0


def test_leaves_no_file_open(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL, b"KVC")
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(ForeignFile):
        read_cache_file(path)
    assert len(os.listdir("/dev/fd")) == before
