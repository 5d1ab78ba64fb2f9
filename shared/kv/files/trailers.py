"""What may follow the payload: a tool-id map, or a session's title. Spec: kv §1.2.

Owns the two byte forms. A broken map costs mappings, never the file; a broken title makes a session file
unusable. Must not know: where the map comes from, the rest of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO, Final

from shared.errors import DamagedFile

MOST_ID_BYTES: Final = 256
MOST_BLOCK_BYTES: Final = 512 << 20
# Ids that a process remembers by default; a map with more than four times as many is not believed.
DEFAULT_ID_LIMIT: Final = 100_000

_MAGIC = b"KTM"
_VERSION = 1
_MAP_HEAD = struct.Struct("<3sBI")
_ENTRY_HEAD = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_READ_CHUNK = 1 << 20


def encode_tool_map(blocks: Mapping[str, bytes]) -> bytes:
    """The map section for tool ids and the blocks that made them; nothing when there is no entry.

    Entries that a reader would stop at (an id or a block that is empty or too long) are left out.
    """
    entries = [
        (identity, block)
        for tool_id, block in blocks.items()
        if 1 <= len(identity := _id_bytes(tool_id)) <= MOST_ID_BYTES and 1 <= len(block) <= MOST_BLOCK_BYTES
    ]
    if not entries:
        return b""
    parts = [_MAP_HEAD.pack(_MAGIC, _VERSION, len(entries))]
    for identity, block in entries:
        parts += [_ENTRY_HEAD.pack(len(identity), len(block)), identity, block]
    return b"".join(parts)


def read_tool_map(file: BinaryIO, limit_ids: int = DEFAULT_ID_LIMIT) -> dict[str, bytes]:
    """The map that starts at the file's position, as far as it can be read; never an error."""
    count = declared_entries(file)
    if count > 4 * limit_ids:
        return {}
    blocks: dict[str, bytes] = {}
    for _ in range(count):
        entry = _read_entry(file)
        if entry is None:
            break
        identity, block = entry
        tool_id = _id_text(identity)
        if tool_id is not None:
            blocks[tool_id] = block
    return blocks


def declared_entries(file: BinaryIO) -> int:
    """How many entries the map that starts at the file's position says it has; 0 if there is no map."""
    head = _read(file, _MAP_HEAD.size)
    magic, version, count = (b"", 0, 0) if head is None else _MAP_HEAD.unpack(head)
    return int(count) if (magic, version) == (_MAGIC, _VERSION) else 0


def encode_title(title: bytes) -> bytes:
    """The title section of a session file."""
    return _LENGTH.pack(len(title)) + title


def read_title(file: BinaryIO) -> bytes:
    """The title that starts at the file's position. Raises DamagedFile when it is missing or cut off."""
    head = _read(file, _LENGTH.size)
    title = None if head is None else _read(file, _LENGTH.unpack(head)[0])
    if title is None:
        raise DamagedFile("the session file's title is missing or cut off")
    return title


def _read_entry(file: BinaryIO) -> tuple[bytes, bytes] | None:
    lengths = _read(file, _ENTRY_HEAD.size)
    if lengths is None:
        return None
    id_bytes, block_bytes = _ENTRY_HEAD.unpack(lengths)
    if not (1 <= id_bytes <= MOST_ID_BYTES and 1 <= block_bytes <= MOST_BLOCK_BYTES):
        return None
    identity = _read(file, id_bytes)
    block = None if identity is None else _read(file, block_bytes)
    return None if identity is None or block is None else (identity, block)


def _id_bytes(tool_id: str) -> bytes:
    # JSON can spell half a surrogate pair, and clients choose ids.
    return tool_id.encode("utf-8", "surrogatepass")


def _id_text(identity: bytes) -> str | None:
    try:
        return identity.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None  # no request can name it


def _read(file: BinaryIO, count: int) -> bytes | None:
    """Exactly `count` bytes, or None when they are not there. Grows as they come: `count` is only a claim."""
    content = bytearray()
    while len(content) < count:
        try:
            piece = file.read(min(_READ_CHUNK, count - len(content)))
        except OSError:
            return None
        if not piece:
            return None
        content += piece
    return bytes(content)
