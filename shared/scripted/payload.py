"""A scripted session's saved state: a header, the tokens, the place in the script, zeros up to its size.

Little-endian. Every length is checked before it is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from shared.errors import PayloadDamaged, PayloadError
from shared.scripted.script import SnapshotCost
from shared.scripted.steps import Cursor
from shared.scripted.vocabulary import TOKENS

MAGIC = b"DS4SCRPT"
VERSION = 1
# magic, version, tokens, turn (0 none, 1 the empty turn, else index + 2), step, alternative, emitted, zeros
_HEADER = struct.Struct("<8sIIIIIIQ")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a payload holds. `turn` as in the header."""

    tokens: list[int]
    turn: int
    cursor: Cursor


def payload_size(tokens: int, cost: SnapshotCost) -> int:
    """Bytes that a payload takes: what the script says, but never less than what it must hold."""
    return max(_HEADER.size + 4 * tokens, cost.fixed_bytes + cost.bytes_per_token * tokens)


def write_payload(
    file: BinaryIO, state: SavedState, cost: SnapshotCost, written: Callable[[int], None]
) -> int:
    """Write a payload; `written` is told after each block how many bytes it had. Returns the bytes."""
    size = payload_size(len(state.tokens), cost)
    zeros = size - _HEADER.size - 4 * len(state.tokens)
    head = _HEADER.pack(MAGIC, VERSION, len(state.tokens), state.turn, *state.cursor, zeros)
    body = head + struct.pack(f"<{len(state.tokens)}I", *state.tokens)
    for start in range(0, len(body), _BLOCK):
        file.write(body[start : start + _BLOCK])
        written(len(body[start : start + _BLOCK]))
    for start in range(0, zeros, _BLOCK):
        block = min(_BLOCK, zeros - start)
        file.write(bytes(block))
        written(block)
    return size


def read_payload(file: BinaryIO, payload_bytes: int, context: int) -> SavedState:
    """Read a payload of exactly `payload_bytes`. Raises PayloadError, or PayloadDamaged where it is no
    payload of any scripted session."""
    if payload_bytes < _HEADER.size:
        raise PayloadDamaged(f"a scripted session takes at least {_HEADER.size} bytes, not {payload_bytes}")
    magic, version, count, turn, *place, zeros = _HEADER.unpack(_read(file, _HEADER.size))
    if magic != MAGIC or version != VERSION:
        raise PayloadError("the payload was not written by a scripted session of this version")
    if count > context:
        raise PayloadError(f"the payload holds {count} tokens but the context only {context}: raise --ctx")
    if payload_bytes != _HEADER.size + 4 * count + zeros:
        raise PayloadDamaged(f"the payload's lengths do not add up to its {payload_bytes} bytes")
    tokens = _tokens(file, count)
    while zeros:
        zeros -= len(_read(file, min(_BLOCK, zeros)))
    return SavedState(tokens, turn, Cursor(*place))


def _tokens(file: BinaryIO, count: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < count:
        block = min(_BLOCK // 4, count - len(tokens))
        tokens += struct.unpack(f"<{block}I", _read(file, 4 * block))
    if tokens and max(tokens) >= len(TOKENS):
        raise PayloadDamaged(f"the payload holds token {max(tokens)} of a vocabulary of {len(TOKENS)}")
    return tokens


def _read(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise PayloadDamaged("the payload ends too early")
    return data
