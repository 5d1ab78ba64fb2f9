"""The first 48 bytes of a cache file. Spec: kv §1.1 and §1.2.

Owns the fields and the rules that they can break on their own. Must not know: the rest of the file, policies.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from shared.errors import DamagedFile, ForeignFile

HEADER_BYTES: Final = 48
MAGIC: Final = b"KVC"
VERSION: Final = 1
PAYLOAD_ABI: Final = 2
# What older writers put in the ABI's place. Text and title can be read, the payload cannot be resumed.
OLDER_ABI: Final = 0
QUANT_BITS: Final = (2, 4)

# magic, version, quant bits, reason, extensions, model, tokens, hits, context, ABI, 3 reserved bytes,
# created, used, payload bytes
_LAYOUT = struct.Struct("<3sBBBBBIIIB3xQQQ")
_ABI_AT = 20
_MOST_HITS = 2**32 - 1


class Reason(IntEnum):
    """Why a file was written."""

    UNKNOWN = 0
    COLD = 1
    CONTINUED = 2
    EVICT = 3
    SHUTDOWN = 4
    AGENT_SYSTEM = 5
    AGENT_SESSION = 6

    @property
    def label(self) -> str:
        """The reason in log lines."""
        return self.name.lower().replace("_", "-")


# Files that later prompts are likely to begin with: they weigh double when room is made.
ANCHORS: Final = frozenset({Reason.COLD, Reason.EVICT, Reason.SHUTDOWN})


class Extension(IntFlag):
    """What the file holds besides the plain state. Bits that we do not know are kept."""

    TOOL_MAP = 1
    RESPONSES_VISIBLE = 2
    THINKING_VISIBLE = 4
    TITLE = 8


@dataclass(frozen=True, slots=True)
class Header:
    """What a cache file says of itself. Times are Unix seconds, `context` and `tokens` count tokens.

    `quant_bits` names the weights of the writer (2 or 4), `model_id` its model (0 Flash, 1 PRO).
    """

    quant_bits: int
    reason: Reason
    extensions: Extension
    model_id: int
    tokens: int
    hits: int
    context: int
    created_at: int
    last_used: int
    payload_bytes: int
    payload_abi: int = PAYLOAD_ABI

    @property
    def used_at(self) -> int:
        """When the file was last used, or else made; 0 when it does not say."""
        return self.last_used or self.created_at

    @property
    def key_label(self) -> str:
        """What the key text is, in log lines."""
        if self.extensions & Extension.RESPONSES_VISIBLE:
            return "responses-visible"
        return "thinking-visible" if self.extensions & Extension.THINKING_VISIBLE else "token-text"

    @property
    def next_hits(self) -> int:
        """The hit count after one more hit; it stays at its maximum."""
        return min(self.hits + 1, _MOST_HITS)

    def encode(self) -> bytes:
        """The 48 bytes. Raises ValueError for a header that no reader would accept."""
        if self.quant_bits not in QUANT_BITS or not self.tokens:
            raise ValueError(f"no header for {self.quant_bits} quant bits and {self.tokens} tokens")
        try:
            return _LAYOUT.pack(
                MAGIC,
                VERSION,
                self.quant_bits,
                self.reason,
                self.extensions,
                self.model_id,
                self.tokens,
                self.hits,
                self.context,
                self.payload_abi,
                self.created_at,
                self.last_used,
                self.payload_bytes,
            )
        except struct.error as error:
            raise ValueError(f"{self} does not fit its fields: {error}") from None

    @classmethod
    def decode(cls, data: bytes, *, any_abi: bool = False) -> Header:
        """The header at the start of `data`; `any_abi` also takes the ABI of older writers.

        Raises ForeignFile when this is no header of our version and ABI, or too short to tell, and
        DamagedFile when it is one but breaks a rule.
        """
        if len(data) <= _ABI_AT or data[:3] != MAGIC:
            raise ForeignFile("this is not a cache file")
        if data[3] != VERSION:
            raise ForeignFile(f"cache file version {data[3]} is not known here, only version {VERSION}")
        if data[_ABI_AT] != PAYLOAD_ABI and not (any_abi and data[_ABI_AT] == OLDER_ABI):
            raise ForeignFile(f"payload ABI {data[_ABI_AT]} cannot be resumed here, only ABI {PAYLOAD_ABI}")
        if len(data) < HEADER_BYTES:
            raise DamagedFile("the cache file is cut off within its header")
        _, _, quant, reason, extensions, model, tokens, hits, context, abi, created, used, payload = (
            _LAYOUT.unpack_from(data)
        )
        if quant not in QUANT_BITS:
            raise DamagedFile(f"the cache file's header names {quant} quant bits; only 2 and 4 exist")
        if not tokens:
            raise DamagedFile("the cache file's header says that it holds no tokens")
        known_reason = Reason(reason) if reason <= max(Reason) else Reason.UNKNOWN
        flags = Extension(extensions)
        return cls(quant, known_reason, flags, model, tokens, hits, context, created, used, payload, abi)
