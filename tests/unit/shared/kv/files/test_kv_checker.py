"""The checker itself: it finds nothing wrong with known files, and every planted fault."""

from __future__ import annotations

import struct

import pytest

from tests.support.golden import cache_folder, golden_json
from tests.support.kv_checker import check_cache_bytes, payload_bytes_by_formula
from tests.support.kv_vectors import MINIMAL, STRIPPED, VECTORS, WITH_TOOL_MAP, Vector

FLASH_RATIOS = (0, 0, *(4, 128) * 20, 4)
PRO_RATIOS = (128, 128, *(4, 128) * 29, 4)
TINY_RATIOS = (0, 0, 4, 128, 4, 128)


def golden(reason: str) -> tuple[bytearray, str]:
    entry = next(entry for entry in golden_json("kv/kv.json")["files"] if entry["reason"] == reason)
    return bytearray((cache_folder() / entry["file"]).read_bytes()), entry["file"]


@pytest.mark.parametrize("vector", VECTORS)
def test_finds_nothing_in_the_known_files(vector: Vector) -> None:
    assert check_cache_bytes(vector.content, vector.name) == []


@pytest.mark.parametrize("reason", ["cold", "shutdown"])
def test_finds_nothing_in_files_of_the_c_engine(reason: str) -> None:
    content, name = golden(reason)
    assert check_cache_bytes(bytes(content), name, TINY_RATIOS) == []


@pytest.mark.parametrize(
    ("tokens", "flash", "pro"),
    [
        (1, 12_811_664, 19_353_120),
        (512, 31_042_956, 45_305_372),
        (2048, 52_184_460, 75_564_572),
        (10240, 164_939_148, 236_946_972),
        (30720, 446_825_868, 640_402_972),
    ],
)
def test_its_formula_gives_the_known_sizes(tokens: int, flash: int, pro: int) -> None:
    assert (len(FLASH_RATIOS), len(PRO_RATIOS)) == (43, 61)
    assert payload_bytes_by_formula(tokens, FLASH_RATIOS, 512, 128, 129280, 128) == flash
    assert payload_bytes_by_formula(tokens, PRO_RATIOS, 512, 128, 129280, 128) == pro


HEADER_FAULTS = [
    (0, b"k", "magic"),
    (3, b"\2", "file version 2"),
    (4, b"\3", "quant bits 3"),
    (5, b"\7", "reason 7"),
    (6, b"\x10", "unknown flags 0x10"),
    (6, b"\x01", "no head"),
    (6, b"\x08", "title's length"),
    (6, b"\x09", "a tool map and a title"),
    (7, b"\2", "model id 2"),
    (8, bytes(4), "0 tokens"),
    (8, struct.pack("<I", 2049), "2049 tokens in a context of 2048"),
    (8, struct.pack("<I", 671), "payload word 7"),
    (16, struct.pack("<I", 2047), "payload word 2"),
    (20, b"\0", "payload ABI 0"),
    (23, b"\1", "reserved"),
    (32, bytes(8), "used before"),
    (40, struct.pack("<Q", 2**40), "text and payload end"),
    (40, struct.pack("<Q", 1943268 - 4), "4 bytes after the payload"),
    (48, struct.pack("<I", 2**32 - 1), "text and payload end"),
    (60, b"\0", "named"),
]


@pytest.mark.parametrize(("at", "change", "problem"), HEADER_FAULTS)
def test_finds_a_fault_in_header_and_text(at: int, change: bytes, problem: str) -> None:
    content, name = golden("cold")
    content[at : at + len(change)] = change
    assert problem in "; ".join(check_cache_bytes(bytes(content), name, TINY_RATIOS))


IDS_AT = 52
LOGITS_AT = IDS_AT + 4 * 672
COUNTS_AT = LOGITS_AT + 4 * 1280
LAYERS_AT = COUNTS_AT + 8 * 6
NAN, MINUS_INFINITY = struct.pack("<f", float("nan")), struct.pack("<f", float("-inf"))

PAYLOAD_FAULTS = [
    (0, b"d", "payload word 0"),
    (4, b"\1", "payload word 1"),
    (12, bytes(4), "prefill chunk"),
    (16, struct.pack("<I", 127), "a ring of 127 rows"),
    (20, b"\x7f", "payload word 5"),
    (24, b"\x01", "payload word 6"),
    (32, b"\5", "payload word 8"),
    (36, b"\1", "the formula says"),
    (48, b"\x7f", "payload word 12"),
    (IDS_AT, struct.pack("<I", 1280), "outside the vocabulary"),
    (LOGITS_AT, NAN, "logits"),
    (COUNTS_AT + 8, b"\0", "compressed row counts"),
    (COUNTS_AT + 24, b"\1", "indexer row counts"),
    (LAYERS_AT, NAN, "layer 0: raw rows"),
    # Layer 2 is the first with compressed rows; its frontier follows 168 of them.
    (LAYERS_AT + 4 * 256 * (3 * 128 + 168), NAN, "layer 2: frontier"),
    (LAYERS_AT + 4 * 256 * (3 * 128 + 168 + 16), MINUS_INFINITY, "layer 2: frontier score"),
]


@pytest.mark.parametrize(("at", "change", "problem"), PAYLOAD_FAULTS)
def test_finds_a_fault_in_the_payload(at: int, change: bytes, problem: str) -> None:
    content, name = golden("cold")
    start = len(content) - 1943268 + at
    content[start : start + len(change)] = change
    assert problem in "; ".join(check_cache_bytes(bytes(content), name, TINY_RATIOS))


def test_finds_wrong_names() -> None:
    assert "named" in check_cache_bytes(MINIMAL.content, STRIPPED.name)[0]
    assert "named" in check_cache_bytes(STRIPPED.content, MINIMAL.name)[0]
    other_birth = bytearray(STRIPPED.content)
    other_birth[24] ^= 1
    assert "named" in check_cache_bytes(bytes(other_birth), STRIPPED.name)[0]


@pytest.mark.parametrize(
    ("at", "change", "problem"),
    [
        (83, b"X", "no head"),
        (86, b"\2", "no head"),
        (87, bytes(4), "empty tool map"),
        (87, b"\2", "cut off at entry 1"),
        (91, bytes(4), "entry 0 has the lengths 0"),
        (92, b"\1", "entry 0 has the lengths 293"),
        (95, bytes(4), "lengths 37 and 0"),
        (95, b"\x18", "ends at 77 of 78"),
    ],
)
def test_finds_a_fault_in_the_tool_map(at: int, change: bytes, problem: str) -> None:
    content = bytearray(WITH_TOOL_MAP.content)
    content[at : at + len(change)] = change
    assert problem in "; ".join(check_cache_bytes(bytes(content), WITH_TOOL_MAP.name))


@pytest.mark.parametrize("cut", range(len(WITH_TOOL_MAP.content)))
def test_finds_every_truncation(cut: int) -> None:
    assert check_cache_bytes(WITH_TOOL_MAP.content[:cut], WITH_TOOL_MAP.name)
