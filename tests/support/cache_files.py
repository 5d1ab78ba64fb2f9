"""The golden cache files, taken apart by hand: 48 header bytes, the text, the payload, trailers."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

from tests.support.golden import cache_folder, golden_json


class CacheFile(NamedTuple):
    """One file written by the C engine's server."""

    reason: str
    context: int
    text: bytes
    payload: bytes
    continue_file: str
    header_words: list[int]

    def open_payload(self) -> io.BytesIO:
        return io.BytesIO(self.payload)


def cache_file(reason: str) -> CacheFile:
    """The golden file written for `reason`: "cold" (672 tokens) or "shutdown" (746)."""
    entry = next(entry for entry in golden_json("kv/kv.json")["files"] if entry["reason"] == reason)
    content = (cache_folder() / entry["file"]).read_bytes()
    assert content[:4] == b"KVC\x01"
    (context,) = struct.unpack_from("<I", content, 16)
    (payload_bytes, text_bytes) = struct.unpack_from("<QI", content, 40)
    text, payload = content[52 : 52 + text_bytes], content[52 + text_bytes :][:payload_bytes]
    return CacheFile(reason, context, text, payload, entry["continue_file"], entry["payload_header"])
