from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from shared.errors import DamagedFile, ForeignFile, PayloadDamaged
from shared.kv.files.cache_file import TEXT_AT
from shared.kv.files.cache_reader import PayloadStream, open_cache_file
from shared.kv.files.checksum import read_sidecar, sidecar_path
from shared.kv.files.header import Extension
from shared.kv.files.trailers import encode_title, encode_tool_map
from shared.kv.payload import read_payload
from tests.support.cache_contents import NAME, NOW, OTHER_PAYLOAD, PAYLOAD, TEXT, written
from tests.support.kv_vectors import MINIMAL, STRIPPED, TOOL_BLOCK, TOOL_ID, WITH_TOOL_MAP
from tests.support.payload_states import layout_of, payload_of


def test_known_files(tmp_path: Path) -> None:
    for vector in (MINIMAL, WITH_TOOL_MAP, STRIPPED):
        (tmp_path / vector.name).write_bytes(vector.content)
    with open_cache_file(tmp_path / MINIMAL.name) as reader:
        assert (reader.text(), reader.payload().read()) == (b"abc", b"")
        assert (reader.tool_map(), reader.title(), reader.verify_checksum()) == ({}, None, None)
    with open_cache_file(tmp_path / WITH_TOOL_MAP.name) as reader:
        assert reader.payload().read() == bytes([1, 2, 3, 4, 5])
        assert (reader.tool_map(), reader.title()) == ({TOOL_ID: TOOL_BLOCK}, None)
    with open_cache_file(tmp_path / STRIPPED.name) as reader:
        assert reader.text() == "<｜User｜>Hello  world".encode()
        assert (reader.tool_map(), reader.title()) == ({}, b"Hello world")


def test_the_payload_codec_reads_from_the_stream(tmp_path: Path) -> None:
    file = written(tmp_path, trailer=b"trailing")
    with open_cache_file(file.path) as reader:
        assert reader.text() == TEXT
        state = read_payload(reader.payload(), file.header.payload_bytes, layout_of())
        assert reader.verify_checksum() is True
    assert payload_of(state, layout_of()) == PAYLOAD


def test_the_stream_ends_with_the_payload(tmp_path: Path) -> None:
    file = written(tmp_path, trailer=b"trailing")
    with open_cache_file(file.path) as reader:
        stream = reader.payload()
        assert stream.remaining == len(PAYLOAD)
        assert stream.read(10) == PAYLOAD[:10]
        assert stream.remaining == len(PAYLOAD) - 10
        assert stream.read(0) == b""
        buffer = bytearray(20)
        assert stream.readinto(buffer) == 20
        assert buffer == PAYLOAD[10:30]
        assert stream.read() == PAYLOAD[30:]
        assert (stream.remaining, stream.read(5), stream.readinto(buffer)) == (0, b"", 0)
        assert stream.readable()


def test_trailers_may_be_read_while_the_payload_is(tmp_path: Path) -> None:
    trailer = encode_tool_map({"a": b"x"})
    file = written(tmp_path, trailer=trailer, extensions=Extension.TOOL_MAP)
    with open_cache_file(file.path) as reader:
        stream = reader.payload()
        start = stream.read(1000)
        assert reader.tool_map() == {"a": b"x"}
        assert start + stream.read() == PAYLOAD
        assert reader.verify_checksum() is True


def test_the_limit_of_ids_is_the_callers(tmp_path: Path) -> None:
    trailer = encode_tool_map({f"id{number}": b"x" for number in range(5)})
    file = written(tmp_path, trailer=trailer, extensions=Extension.TOOL_MAP)
    with open_cache_file(file.path) as reader:
        assert reader.tool_map(1) == {}
        assert len(reader.tool_map(2)) == 5


def test_the_checksum_reads_what_was_left(tmp_path: Path) -> None:
    file = written(tmp_path)
    with open_cache_file(file.path) as reader:
        assert reader.verify_checksum() is True
        reader.payload().read(100)
        assert reader.verify_checksum() is True
        # A second look at the payload starts over.
        assert reader.payload().read() == PAYLOAD
        assert reader.verify_checksum() is True


@pytest.mark.parametrize("at", [TEXT_AT, TEXT_AT + len(TEXT) - 1, TEXT_AT + len(TEXT), -1])
def test_the_checksum_covers_text_and_payload(tmp_path: Path, at: int) -> None:
    file = written(tmp_path)
    content = bytearray(file.path.read_bytes())
    content[at] ^= 1
    file.path.write_bytes(content)
    with open_cache_file(file.path) as reader:
        assert reader.verify_checksum() is False


def test_trailer_and_hits_are_not_covered(tmp_path: Path) -> None:
    file = written(tmp_path, trailer=b"trailing")
    content = bytearray(file.path.read_bytes())
    content[-1] ^= 1
    content[12] ^= 1
    file.path.write_bytes(content)
    with open_cache_file(file.path) as reader:
        assert reader.verify_checksum() is True


def test_a_missing_sidecar_tells_nothing(tmp_path: Path) -> None:
    with open_cache_file(written(tmp_path, checksum=False).path) as reader:
        assert reader.verify_checksum() is None


def test_a_sidecar_of_another_file_tells_nothing(tmp_path: Path) -> None:
    """As when another program, which keeps no sidecars, writes the same name again."""
    file = written(tmp_path)
    sidecar = sidecar_path(file.path).read_bytes()
    written(tmp_path, OTHER_PAYLOAD, created_at=NOW + 1)
    sidecar_path(file.path).write_bytes(sidecar)
    assert read_sidecar(file.path)
    with open_cache_file(file.path) as reader:
        assert reader.verify_checksum() is None


def test_a_file_that_is_replaced_meanwhile_is_still_read_whole(tmp_path: Path) -> None:
    file = written(tmp_path)
    with open_cache_file(file.path) as reader:
        written(tmp_path, OTHER_PAYLOAD, created_at=NOW + 1)
        assert reader.text() == TEXT
        assert reader.payload().read() == PAYLOAD
        assert reader.verify_checksum() is None


def test_a_file_that_is_cut_off_meanwhile_is_damaged(tmp_path: Path) -> None:
    file = written(tmp_path)
    with open_cache_file(file.path) as reader:
        os.truncate(file.path, file.payload_at + 100)
        assert len(reader.payload().read()) == 100
        assert reader.verify_checksum() is False
        with pytest.raises(PayloadDamaged, match="cut off"):
            read_payload(reader.payload(), file.header.payload_bytes, layout_of())
    file = written(tmp_path)
    with open_cache_file(file.path) as reader:
        os.truncate(file.path, file.payload_at - 1)
        with pytest.raises(DamagedFile, match="cut off within its text"):
            reader.text()


def test_a_title_that_is_cut_off_is_damage(tmp_path: Path) -> None:
    file = written(tmp_path, trailer=encode_title(b"a title")[:-1], extensions=Extension.TITLE)
    with open_cache_file(file.path) as reader, pytest.raises(DamagedFile, match="title"):
        reader.title()


def test_reads_in_bounded_pieces(tmp_path: Path) -> None:
    class Counted(io.FileIO):
        largest = 0

        def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
            self.largest = max(self.largest, len(buffer))
            return super().readinto(buffer)

    path = tmp_path / "large"
    path.write_bytes(bytes(3 << 20))
    with Counted(path) as raw:
        assert len(PayloadStream(raw, 0, 3 << 20, None).read()) == 3 << 20
        assert raw.largest == 1 << 20


def test_closes_its_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    before = len(os.listdir("/dev/fd"))
    with open_cache_file(file.path) as reader:
        reader.payload().close()
        assert reader.text() == TEXT
    assert len(os.listdir("/dev/fd")) == before
    file.path.write_bytes(b"KVC\1")
    with pytest.raises(ForeignFile, match=NAME):
        open_cache_file(file.path)
    assert len(os.listdir("/dev/fd")) == before
    with pytest.raises(FileNotFoundError):
        open_cache_file(tmp_path / "none.kv")
