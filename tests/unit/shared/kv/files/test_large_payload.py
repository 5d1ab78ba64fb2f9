"""A payload that is written in several pieces, handed to the disk one by one, arrives whole."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from shared.kv.files.cache_file import cache_name
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.cache_writer import write_cache_file
from shared.kv.files.header import Extension, Header, Reason

# A little more than two pieces, and chunks that end within and at the end of one.
CONTENT = bytes(range(251)) * (17 * (1 << 20) // 251)
CUTS = {"one": [], "odd": [1, 8 << 20, (8 << 20) + 1], "at the end of a piece": [8 << 20]}


def chunks(cuts: list[int]) -> list[bytes]:
    edges = [0, *cuts, len(CONTENT)]
    return [CONTENT[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS.keys())
def test_arrives_whole(cuts: list[int], durable: bool, tmp_path: Path) -> None:
    header = Header(2, Reason.COLD, Extension(0), 0, 512, 0, 4096, 1, 1, len(CONTENT))
    path = tmp_path / cache_name(b"key")
    write_cache_file(path, header, b"key", chunks(cuts), b"tail", durable=durable)
    with open_cache_file(path) as reader:
        assert reader.payload().read() == CONTENT
        assert reader.verify_checksum() is True
    assert path.read_bytes().endswith(b"tail")


def test_the_disk_begins_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[tuple[int, int]] = []
    # Not every system has these: here one of them stands for those that do.
    monkeypatch.setattr(os, "POSIX_FADV_DONTNEED", 4, raising=False)
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, start, size, advice: handed.append((start, size)), raising=False
    )
    header = Header(2, Reason.COLD, Extension(0), 0, 512, 0, 4096, 1, 1, len(CONTENT))
    write_cache_file(tmp_path / cache_name(b"key"), header, b"key", [CONTENT], durable=True)
    assert [start for start, _ in handed] == [0, 55 + (8 << 20), 55 + (16 << 20)]
    assert sum(size for _, size in handed) == 55 + len(CONTENT)
    handed.clear()
    write_cache_file(tmp_path / cache_name(b"key"), header, b"key", [CONTENT], durable=False)
    assert not handed
