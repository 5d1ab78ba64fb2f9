from __future__ import annotations

import io
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import DamagedFile
from shared.kv.files.trailers import encode_title, encode_tool_map, read_title, read_tool_map
from tests.support.kv_vectors import TOOL_BLOCK, TOOL_ID, WITH_TOOL_MAP

TWO = {"call_a": b"<one>", "toolu_b": b"<two>"}
IDS = st.text(min_size=1, max_size=64)
BLOCKS = st.binary(min_size=1, max_size=200)


def test_known_map() -> None:
    assert encode_tool_map({TOOL_ID: TOOL_BLOCK}) == WITH_TOOL_MAP.content[83:]
    assert read_tool_map(io.BytesIO(WITH_TOOL_MAP.content[83:])) == {TOOL_ID: TOOL_BLOCK}


@given(blocks=st.dictionaries(IDS, BLOCKS, max_size=8))
def test_map_round_trip(blocks: dict[str, bytes]) -> None:
    content = encode_tool_map(blocks)
    assert len(content) == (
        8 + sum(8 + len(tool_id.encode()) + len(block) for tool_id, block in blocks.items()) if blocks else 0
    )
    assert read_tool_map(io.BytesIO(content)) == blocks


def test_no_entry_no_bytes() -> None:
    assert encode_tool_map({}) == b""
    assert encode_tool_map({"": b"x", "y" * 257: b"x", "z": b""}) == b""


def test_entries_that_would_stop_a_reader_are_left_out() -> None:
    blocks = {"": b"x", "a": b"1", "y" * 257: b"x", "é" * 128: b"2", "é" * 129: b"x", "b": b"", "c": b"3"}
    assert read_tool_map(io.BytesIO(encode_tool_map(blocks))) == {"a": b"1", "é" * 128: b"2", "c": b"3"}


def test_ids_need_not_be_proper_text() -> None:
    half = {"call_\ud800": b"x", "call_b": b"y"}
    assert read_tool_map(io.BytesIO(encode_tool_map(half))) == half
    broken = encode_tool_map({"call_a": b"x", "call_b": b"y"}).replace(b"call_a", b"call_\xff")
    assert read_tool_map(io.BytesIO(broken)) == {"call_b": b"y"}


@pytest.mark.parametrize("cut", range(len(encode_tool_map(TWO)) + 1))
def test_a_map_that_is_cut_off_gives_what_was_whole(cut: int) -> None:
    content = encode_tool_map(TWO)
    first = 8 + 8 + len("call_a") + len(b"<one>")
    expected = TWO if cut == len(content) else {"call_a": b"<one>"} if cut >= first else {}
    assert read_tool_map(io.BytesIO(content[:cut])) == expected


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, b"k", {}),
        (3, b"\0", {}),
        (3, b"\2", {}),
        (4, b"\1", {"call_a": b"<one>"}),
        (4, b"\3", TWO),
        (8, bytes(4), {}),
        (8, struct.pack("<I", 257), {}),
        (12, bytes(4), {}),
        (12, struct.pack("<I", (512 << 20) + 1), {}),
        (27, bytes(4), {"call_a": b"<one>"}),
    ],
)
def test_a_map_stops_at_the_first_violation(at: int, value: bytes, expected: dict[str, bytes]) -> None:
    content = bytearray(encode_tool_map(TWO))
    content[at : at + len(value)] = value
    assert read_tool_map(io.BytesIO(bytes(content))) == expected


def test_an_id_that_is_too_long_stops_the_map_though_it_is_whole() -> None:
    long_id = struct.pack("<II", 257, 1) + b"y" * 257 + b"x"
    after = struct.pack("<II", 1, 1) + b"ax"
    assert read_tool_map(io.BytesIO(b"KTM\1\2\0\0\0" + after + long_id)) == {"a": b"x"}
    assert read_tool_map(io.BytesIO(b"KTM\1\2\0\0\0" + long_id + after)) == {}


def test_more_than_four_times_the_remembered_ids_are_not_believed() -> None:
    blocks = {f"call_{number}": b"x" for number in range(9)}
    assert read_tool_map(io.BytesIO(encode_tool_map(blocks)), 2) == {}
    blocks.popitem()
    assert read_tool_map(io.BytesIO(encode_tool_map(blocks)), 2) == blocks


@given(content=st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"KTM\1\2\0\0\0" + rest))
def test_a_map_of_any_bytes_is_no_error(content: bytes) -> None:
    read_tool_map(io.BytesIO(content))


def test_a_map_on_a_failing_disk_is_no_error() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            content = super().read(size)
            if self.tell() > 30:
                raise OSError(5, "Input/output error")
            return content

    assert read_tool_map(Failing(encode_tool_map(TWO))) == {"call_a": b"<one>"}


@given(title=st.binary(max_size=100), rest=st.binary(max_size=5))
def test_title_round_trip(title: bytes, rest: bytes) -> None:
    content = encode_title(title)
    assert content == struct.pack("<I", len(title)) + title
    assert read_title(io.BytesIO(content + rest)) == title
    for cut in range(len(content)):
        with pytest.raises(DamagedFile, match="title"):
            read_title(io.BytesIO(content[:cut]))


def test_announced_lengths_are_not_allocated() -> None:
    title = io.BytesIO(struct.pack("<I", 2**32 - 1) + b"short")
    block = io.BytesIO(b"KTM\1\1\0\0\0" + struct.pack("<II", 1, 512 << 20) + b"ashort")
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFile):
            read_title(title)
        assert read_tool_map(block) == {}
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_reads_in_bounded_pieces() -> None:
    class Counted(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.largest = max(self.largest, size or 0)
            return super().read(size)

    title = Counted(encode_title(bytes(3 << 20)))
    assert read_title(title) == bytes(3 << 20)
    assert title.largest == 1 << 20
