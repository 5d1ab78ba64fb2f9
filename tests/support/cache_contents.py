"""A small whole cache file for tests: a toy session's payload under a key text, ready to be written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from shared.kv.files.cache_file import CacheFile, cache_name
from shared.kv.files.cache_writer import write_cache_file
from shared.kv.files.header import Extension, Header, Reason
from tests.support.payload_states import TOY, layout_of, payload_of, random_state

TOKENS = 300
CONTEXT = 2048
TEXT = "<｜User｜>a key of some bytes<｜Assistant｜>".encode() + bytes(range(256))
NAME = cache_name(TEXT)
PAYLOAD = payload_of(random_state(TOY, TOKENS), layout_of(context=CONTEXT))
OTHER_PAYLOAD = payload_of(random_state(TOY, TOKENS, seed=1), layout_of(context=CONTEXT))
NOW = 1_700_000_000
HEADER = Header(2, Reason.COLD, Extension(0), 0, TOKENS, 0, CONTEXT, NOW, NOW, len(PAYLOAD))


def written(
    directory: Path,
    payload: bytes = PAYLOAD,
    trailer: bytes = b"",
    *,
    checksum: bool = True,
    **header: Any,
) -> CacheFile:
    """The file in `directory`, without flushing it; `header` replaces fields."""
    path = directory / NAME
    fields = replace(HEADER, payload_bytes=len(payload), **header)
    return write_cache_file(path, fields, TEXT, [payload], trailer, durable=False, checksum=checksum)
