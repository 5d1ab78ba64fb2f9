"""A rendered prompt as pieces of known origin.

What a client sent can never turn into control tokens, because each piece remembers who wrote it and a
suffix is cut from the list, never parsed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class SegmentKind(Enum):
    """Who wrote a piece: CONTROL our renderer, TEXT a client, EXACT the model (replayed as sampled)."""

    CONTROL = "control"
    TEXT = "text"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Segment:
    """Some bytes of a prompt and their origin."""

    data: bytes
    kind: SegmentKind

    def __repr__(self) -> str:
        return f"{self.kind.value}({self.data.decode('utf-8', 'replace')!r})"


def join(segments: Iterable[Segment]) -> bytes:
    """The rendered bytes."""
    return b"".join(segment.data for segment in segments)


def cut(segments: Sequence[Segment], byte_offset: int) -> list[Segment]:
    """What lies behind the first `byte_offset` bytes, every piece keeping its kind."""
    assert byte_offset >= 0, byte_offset
    rest: list[Segment] = []
    for segment in segments:
        if byte_offset >= len(segment.data):
            byte_offset -= len(segment.data)
            continue
        rest.append(Segment(segment.data[byte_offset:], segment.kind) if byte_offset else segment)
        byte_offset = 0
    return rest
