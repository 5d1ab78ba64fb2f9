"""Whole cache files with known bytes, from the description of the format (spec: kv §12)."""

from __future__ import annotations

from typing import NamedTuple


class Vector(NamedTuple):
    """A file: its name, its bytes, and the SHA-1 that the description gives for them."""

    name: str
    content: bytes
    sha1: str


# Flash, 2 bits, cold, 512 tokens, no payload, text "abc".
MINIMAL = Vector(
    "a9993e364706816aba3e25717850c26c9cd0d89d.kv",
    bytes.fromhex(
        "4b564301 02010000 00020000 00000000 00800000 02000000"
        "00f15365 00000000 00f15365 00000000 00000000 00000000"
        "03000000 616263"
    ),
    "87889ad5c397409db3ce2db75d5034dd7fb11602",
)

TOOL_ID = "call_00112233445566778899aabbccddeeff"
TOOL_BLOCK = b"<tool_calls></tool_calls>"
_TOOL_TEXT = b"x<tool_calls></tool_calls>"
# PRO, 4 bits, continued, 20480 tokens, 7 hits, a payload of five bytes and a tool map.
WITH_TOOL_MAP = Vector(
    "9099173271da87440017e977b90c803096cbae38.kv",
    bytes.fromhex(
        "4b564301 04020101 00500000 07000000 00000100 02000000"
        "64f15365 00000000 c8f15365 00000000 05000000 00000000"
        "1a000000"
    )
    + _TOOL_TEXT
    + bytes([1, 2, 3, 4, 5])
    + bytes.fromhex("4b544d01 01000000 25000000 19000000")
    + TOOL_ID.encode()
    + TOOL_BLOCK,
    "c006e052e2d635c6d113f433967523a44d33aefe",
)

# Flash, 2 bits, an agent's session, stripped: 3 tokens of text, no payload, a title.
STRIPPED = Vector(
    "fe8c5b68d8e9bd6eae558cb82b5bcee2a94c31fb.kv",
    bytes.fromhex(
        "4b564301 02060800 03000000 00000000 00800000 02000000"
        "00f15365 00000000 2cf25365 00000000 00000000 00000000"
        "18000000"
    )
    + "<｜User｜>Hello  world".encode()
    + b"\x0b\0\0\0Hello world",
    "cf3cc38c2a441b06cf6131fb44e741032a7f9fa5",
)
VECTORS = [MINIMAL, WITH_TOOL_MAP, STRIPPED]
