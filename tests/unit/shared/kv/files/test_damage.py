"""Flipped bits, cut ends and giant lengths: found out, or harmless; never believed, never allocated for."""

from __future__ import annotations

import random
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import CacheFileError, DamagedFile, ForeignFile, PayloadDamaged, PayloadError
from shared.kv.files.cache_file import TEXT_AT, CacheFile, cache_name
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.header import Extension
from shared.kv.files.trailers import encode_tool_map
from shared.kv.payload import payload_size, read_payload
from tests.support.cache_contents import HEADER, NAME, OTHER_PAYLOAD, PAYLOAD, TEXT, written
from tests.support.payload_states import TOY, layout_of, payload_of

BLOCKS = {"call_a": b"<one>", "call_b": b"<two>"}
FOREIGN_AT = {0, 1, 2, 3, 20}
# Only a size can be wrong in these; a smaller one still fits into the file.
SIZES_AT = range(40, TEXT_AT)


class Victim:
    """A good file on disk that is damaged in one way after another."""

    def __init__(self, directory: Path) -> None:
        trailer = encode_tool_map(BLOCKS)
        self.file: CacheFile = written(directory, trailer=trailer, extensions=Extension.TOOL_MAP)
        self.content = self.file.path.read_bytes()

    def flip(self, at: int, bit: int) -> None:
        content = bytearray(self.content)
        content[at] ^= 1 << bit
        self.file.path.write_bytes(content)

    def put(self, at: int, change: bytes) -> None:
        content = bytearray(self.content)
        content[at : at + len(change)] = change
        self.file.path.write_bytes(content)


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path)


def use(path: Path) -> bool | None:
    """Everything that a load does with a file, in order; what the checksum says."""
    with open_cache_file(path) as reader:
        if cache_name(reader.text()) != NAME:
            raise DamagedFile("another text")
        state = read_payload(reader.payload(), reader.file.header.payload_bytes, layout_of())
        if len(state.tokens) != reader.file.header.tokens:
            raise DamagedFile("another number of tokens")
        verdict = reader.verify_checksum()
        assert verdict is False or payload_of(state, layout_of()) == PAYLOAD
        assert reader.tool_map().items() <= BLOCKS.items()
        return verdict


@pytest.mark.parametrize("at", range(TEXT_AT))
def test_every_bit_of_the_header(victim: Victim, at: int) -> None:
    for bit in range(8):
        victim.flip(at, bit)
        if at in FOREIGN_AT:
            with pytest.raises(ForeignFile):
                use(victim.file.path)
        elif at == 4 or at in SIZES_AT or at in range(8, 12):
            with pytest.raises((DamagedFile, PayloadDamaged)):
                use(victim.file.path)
        else:
            # Hits, times, flags, model, context: nothing wrong is computed from what they say. Another time
            # of birth makes the sidecar one of another file.
            assert use(victim.file.path) is (None if at in range(24, 32) else True)


def test_500_random_bits_of_text_and_payload(victim: Victim) -> None:
    rng = random.Random(5)
    for _ in range(500):
        victim.flip(rng.randrange(TEXT_AT, victim.file.trailer_at), rng.randrange(8))
        with open_cache_file(victim.file.path) as reader:
            assert reader.verify_checksum() is False
        try:
            assert use(victim.file.path) is False
        except (CacheFileError, PayloadError):
            continue


def test_500_random_bits_without_a_sidecar_are_no_other_error(tmp_path: Path) -> None:
    rng = random.Random(6)
    file = written(tmp_path, checksum=False)
    content = file.path.read_bytes()
    for _ in range(500):
        changed = bytearray(content)
        changed[rng.randrange(file.payload_at, file.payload_at + 1600)] ^= 1 << rng.randrange(8)
        file.path.write_bytes(changed)
        with open_cache_file(file.path) as reader:
            try:
                read_payload(reader.payload(), len(PAYLOAD), layout_of())
            except PayloadError:
                continue


def test_500_random_bits_of_the_tool_map_cost_only_mappings(victim: Victim) -> None:
    rng = random.Random(7)
    for _ in range(500):
        victim.flip(rng.randrange(victim.file.trailer_at, victim.file.size), rng.randrange(8))
        with open_cache_file(victim.file.path) as reader:
            assert len(reader.tool_map()) <= 2
            assert reader.verify_checksum() is True


def test_cut_off_anywhere(victim: Victim) -> None:
    size = victim.file.size
    places = {*range(TEXT_AT + 20), *range(0, size, 997), *range(size - 60, size), victim.file.trailer_at - 1}
    for cut in sorted(places):
        victim.file.path.write_bytes(victim.content[:cut])
        if cut < victim.file.trailer_at:
            with pytest.raises(ForeignFile if cut <= 20 else DamagedFile):
                use(victim.file.path)
        else:
            assert use(victim.file.path) is True


def test_zeros_where_the_disk_lost_blocks(victim: Victim) -> None:
    for start in range(0, victim.file.size, 4096):
        victim.put(start, bytes(min(4096, victim.file.size - start)))
        try:
            assert use(victim.file.path) is False
        except (CacheFileError, PayloadError):
            continue


def test_giant_lengths_in_a_giant_file_cost_no_memory(victim: Victim) -> None:
    """A sparse file that really is as long as it claims."""
    victim.put(40, struct.pack("<Q", 2**40))
    with victim.file.path.open("r+b") as file:
        file.truncate(victim.file.payload_at + 2**40)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadDamaged, match="bytes too many"):
            use(victim.file.path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_no_more_is_allocated_than_the_file_holds(tmp_path: Path) -> None:
    """A payload of 52 bytes that announces, in agreement with itself, two million tokens."""
    context = 1 << 21
    shape = replace(TOY, head_dim=512)
    words = [0x34565344, 2, context, 4096, 128, 128, context // 4 + 2, context - 1, 3, 512, 4, 16, 128]
    file = written(tmp_path, struct.pack("<13I", *words), tokens=context - 1, context=context)
    tracemalloc.start()
    try:
        announced = payload_size(shape, context - 1, context)
        with open_cache_file(file.path) as reader:
            stream = reader.payload()
            with pytest.raises(PayloadDamaged, match="cut off"):
                read_payload(stream, announced, layout_of(shape, context))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_wrong_payload_is_found_by_its_checksum_only(tmp_path: Path) -> None:
    """Right in every count, yet another session's: what a lost write looks like."""
    file = written(tmp_path)
    content = file.path.read_bytes()
    file.path.write_bytes(content[: file.payload_at] + OTHER_PAYLOAD)
    assert use(file.path) is False
    assert (TEXT, HEADER.tokens) == (content[TEXT_AT : file.payload_at], 300)
