from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kv.files.cache_file import CacheFile
from shared.kv.files.checksum import (
    Checksum,
    Sidecar,
    read_sidecar,
    remove_sidecar,
    sidecar_path,
    write_sidecar,
)
from tests.support.cache_contents import HEADER

DIGEST = "0123456789abcdef" * 2
SIDECAR = Sidecar(DIGEST, text_bytes=7, payload_bytes=2**40, created_at=1700000000)
LINE = f"xxh3-128 {DIGEST} text_bytes=7 payload_bytes=1099511627776 created_at=1700000000\n"


def test_known_digests() -> None:
    assert Checksum().hexdigest() == "99aa06d3014798d86001c324468d497f"
    checksum = Checksum()
    checksum.update(b"abc")
    assert checksum.hexdigest() == "06b05ab6733a618578af5f94892f3950"


@given(content=st.binary(max_size=3000), cuts=st.lists(st.integers(0, 3000), max_size=4))
def test_pieces_do_not_matter(content: bytes, cuts: list[int]) -> None:
    whole, pieces = Checksum(), Checksum()
    whole.update(content)
    edges = sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    for start, end in pairwise(edges):
        pieces.update(memoryview(content)[start:end])
    assert pieces.hexdigest() == whole.hexdigest()


def test_the_sidecar_is_one_line_of_text(tmp_path: Path) -> None:
    path = tmp_path / "name.kv"
    write_sidecar(path, SIDECAR)
    assert sidecar_path(path) == tmp_path / "name.kv.sum"
    assert sidecar_path(path).read_text() == LINE
    assert read_sidecar(path) == SIDECAR
    assert [entry.name for entry in tmp_path.iterdir()] == ["name.kv.sum"]
    remove_sidecar(path)
    assert read_sidecar(path) is None
    remove_sidecar(path)


@pytest.mark.parametrize(
    "line",
    [
        "",
        LINE[:-1],
        LINE + "\n",
        LINE * 2,
        LINE.replace("xxh3-128", "xxh3-64"),
        LINE.replace("a", "A"),
        LINE.replace("a", "é"),
        LINE.replace("=7", "=-7"),
        LINE.replace("=7", f"={'9' * 21}"),
        LINE.replace("created_at=1700000000", "created_at="),
        "\0" * len(LINE),
    ],
)
def test_a_line_that_cannot_be_understood_says_nothing(tmp_path: Path, line: str) -> None:
    path = tmp_path / "name.kv"
    sidecar_path(path).write_text(line)
    assert read_sidecar(path) is None


def test_a_giant_sidecar_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "name.kv"
    with sidecar_path(path).open("wb") as file:
        file.truncate(1 << 40)
    assert read_sidecar(path) is None


def test_it_covers_only_the_file_that_it_was_made_of() -> None:
    header = replace(HEADER, payload_bytes=2**40, created_at=1700000000)
    file = CacheFile(Path("name.kv"), header, 7, 0)
    assert Sidecar.of(file, Checksum()).covers(file)
    assert SIDECAR.covers(file)
    assert SIDECAR.covers(replace(file, header=replace(header, hits=9, last_used=1800000000)))
    assert not SIDECAR.covers(replace(file, text_bytes=8))
    assert not SIDECAR.covers(replace(file, header=replace(header, payload_bytes=1)))
    assert not SIDECAR.covers(replace(file, header=replace(header, created_at=1700000001)))
