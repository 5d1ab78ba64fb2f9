from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import CacheFileError, DamagedFile, ForeignFile
from shared.kv.files.header import ANCHORS, Extension, Header, Reason
from tests.support.kv_vectors import MINIMAL, STRIPPED, WITH_TOOL_MAP

MINIMAL_HEADER = Header(
    quant_bits=2,
    reason=Reason.COLD,
    extensions=Extension(0),
    model_id=0,
    tokens=512,
    hits=0,
    context=32768,
    created_at=1700000000,
    last_used=1700000000,
    payload_bytes=0,
)
TOOL_MAP_HEADER = Header(
    quant_bits=4,
    reason=Reason.CONTINUED,
    extensions=Extension.TOOL_MAP,
    model_id=1,
    tokens=20480,
    hits=7,
    context=65536,
    created_at=1700000100,
    last_used=1700000200,
    payload_bytes=5,
)
STRIPPED_HEADER = Header(
    quant_bits=2,
    reason=Reason.AGENT_SESSION,
    extensions=Extension.TITLE,
    model_id=0,
    tokens=3,
    hits=0,
    context=32768,
    created_at=1700000000,
    last_used=1700000300,
    payload_bytes=0,
)


@pytest.mark.parametrize(
    ("vector", "header"),
    [(MINIMAL, MINIMAL_HEADER), (WITH_TOOL_MAP, TOOL_MAP_HEADER), (STRIPPED, STRIPPED_HEADER)],
)
def test_known_headers(vector: object, header: Header) -> None:
    content = vector.content  # type: ignore[attr-defined]
    assert Header.decode(content) == header
    assert header.encode() == content[:48]


@st.composite
def headers(draw: st.DrawFn) -> Header:
    words = st.integers(0, 2**32 - 1)
    longs = st.integers(0, 2**64 - 1)
    return Header(
        quant_bits=draw(st.sampled_from([2, 4])),
        reason=draw(st.sampled_from(Reason)),
        extensions=Extension(draw(st.integers(0, 255))),
        model_id=draw(st.integers(0, 255)),
        tokens=draw(st.integers(1, 2**32 - 1)),
        hits=draw(words),
        context=draw(words),
        created_at=draw(longs),
        last_used=draw(longs),
        payload_bytes=draw(longs),
    )


@given(header=headers())
def test_round_trip(header: Header) -> None:
    content = header.encode()
    assert len(content) == 48
    assert Header.decode(content) == header


@given(content=st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"KVC\1\2\1" + rest))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    try:
        header = Header.decode(content)
    except CacheFileError:
        return
    assert header.tokens
    assert header.quant_bits in (2, 4)


def changed(at: int, value: int) -> bytes:
    content = bytearray(MINIMAL.content)
    content[at] = value
    return bytes(content)


@pytest.mark.parametrize("at", [0, 1, 2, 3, 20])
def test_another_magic_version_or_abi_is_foreign(at: int) -> None:
    for value in set(range(256)) - {MINIMAL.content[at]}:
        with pytest.raises(ForeignFile):
            Header.decode(changed(at, value))


def test_older_files_are_read_on_request_only() -> None:
    older = Header.decode(changed(20, 0), any_abi=True)
    assert older == replace(MINIMAL_HEADER, payload_abi=0)
    assert older.encode()[20] == 0
    with pytest.raises(ForeignFile, match="ABI 3"):
        Header.decode(changed(20, 3), any_abi=True)


def test_impossible_fields_are_damage() -> None:
    for value in set(range(256)) - {2, 4}:
        with pytest.raises(DamagedFile, match="quant bits"):
            Header.decode(changed(4, value))
    with pytest.raises(DamagedFile, match="no tokens"):
        Header.decode(changed(9, 0))


@pytest.mark.parametrize("length", range(48))
def test_a_short_header_is_damaged_once_it_tells_what_it_is(length: int) -> None:
    with pytest.raises(ForeignFile if length <= 20 else DamagedFile):
        Header.decode(MINIMAL.content[:length])


def test_an_unknown_reason_counts_as_none() -> None:
    assert Header.decode(changed(5, 7)).reason is Reason.UNKNOWN
    assert Header.decode(changed(5, 255)).reason is Reason.UNKNOWN


def test_unknown_flags_are_kept_and_reserved_bytes_are_not() -> None:
    assert Header.decode(changed(6, 0xF1)).encode() == changed(6, 0xF1)[:48]
    assert Header.decode(changed(22, 9)).encode() == MINIMAL.content[:48]


@pytest.mark.parametrize(
    "changes",
    [
        {"quant_bits": 3},
        {"tokens": 0},
        {"tokens": 2**32},
        {"hits": -1},
        {"model_id": 256},
        {"payload_bytes": 2**64},
    ],
)
def test_a_header_that_no_reader_accepts_is_not_written(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"no header for|does not fit its fields"):
        replace(MINIMAL_HEADER, **changes).encode()  # type: ignore[arg-type]


def test_words_for_log_lines() -> None:
    assert [reason.label for reason in Reason] == [
        "unknown",
        "cold",
        "continued",
        "evict",
        "shutdown",
        "agent-system",
        "agent-session",
    ]
    labels = {0: "token-text", 1: "token-text", 2: "responses-visible", 4: "thinking-visible"}
    labels |= {6: "responses-visible", 5: "thinking-visible", 8: "token-text"}
    for flags, label in labels.items():
        assert replace(MINIMAL_HEADER, extensions=Extension(flags)).key_label == label
    assert {Reason(1), Reason(3), Reason(4)} == ANCHORS


def test_when_it_was_used() -> None:
    assert replace(MINIMAL_HEADER, created_at=5, last_used=9).used_at == 9
    assert replace(MINIMAL_HEADER, created_at=5, last_used=0).used_at == 5


def test_hits_stay_at_their_maximum() -> None:
    assert replace(MINIMAL_HEADER, hits=6).next_hits == 7
    assert replace(MINIMAL_HEADER, hits=2**32 - 1).next_hits == 2**32 - 1
