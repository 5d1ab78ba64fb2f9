"""Small cache files for tests, put together from the format's tables with `struct` alone."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

WINDOW = 128
CREATED = 1_700_000_000


def zero_payload(
    tokens: int,
    ratios: Sequence[int] = (0, 4, 128),
    *,
    context: int = 2048,
    head_dim: int = 8,
    index_dim: int = 4,
    vocabulary: int = 16,
) -> bytes:
    """A payload, of toy sizes if not said otherwise, whose logits and tensors are zeros."""
    raw_rows = min(tokens, WINDOW)
    words = [0x34565344, 2, context, context, WINDOW, WINDOW, context // 4 + 2, tokens]
    words += [len(ratios), head_dim, index_dim, vocabulary, raw_rows]
    words += [token % vocabulary for token in range(tokens)]
    words += [0] * vocabulary
    words += [tokens // ratio if ratio else 0 for ratio in ratios]
    words += [tokens // 4 if ratio == 4 else 0 for ratio in ratios]
    floats = 0
    for ratio in ratios:
        floats += raw_rows * head_dim
        if ratio == 4:
            floats += tokens // 4 * (head_dim + index_dim) + 2 * 8 * 2 * (head_dim + index_dim)
        elif ratio == 128:
            floats += tokens // 128 * head_dim + 2 * 128 * head_dim
    return struct.pack(f"<{len(words)}I", *words) + bytes(4 * floats)


def cache_bytes(
    text: bytes,
    payload: bytes,
    *,
    tokens: int,
    trailer: bytes = b"",
    extensions: int = 0,
    reason: int = 1,
    hits: int = 0,
    context: int = 2048,
    abi: int = 2,
    used: int = CREATED,
    model_id: int = 0,
) -> bytes:
    """A whole cache file."""
    head = struct.pack("<3sBBBBBIII", b"KVC", 1, 2, reason, extensions, model_id, tokens, hits, context)
    head += struct.pack("<B3xQQQ", abi, CREATED, used, len(payload))
    return head + struct.pack("<I", len(text)) + text + payload + trailer


def put_cache_file(
    folder: Path, text: bytes, tokens: int = 10, payload: bytes | None = None, **fields: int | bytes
) -> Path:
    """Write a cache file of `tokens` under its right name into `folder`."""
    content = zero_payload(tokens) if payload is None else payload
    path = folder / f"{hashlib.sha1(text).hexdigest()}.kv"
    path.write_bytes(cache_bytes(text, content, tokens=tokens, **fields))  # type: ignore[arg-type]
    return path


def tool_map(entries: dict[str, bytes]) -> bytes:
    """The tool map section."""
    section = b"KTM\x01" + struct.pack("<I", len(entries))
    for name, block in entries.items():
        section += struct.pack("<II", len(name), len(block)) + name.encode() + block
    return section
