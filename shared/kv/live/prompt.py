"""What a turn asks the model: a rendered prompt, its tokens and where each byte of it came from.

Must not know: dialects, sessions, stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shared.kv.live.tool_tail import ToolTail
from shared.text.segments import Segment, cut, join
from shared.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Prompt:
    """`tokens` is the whole prompt, encoded afresh from `segments`. `tail` are the results of tools that it
    ends with, where their calls may name a live answer."""

    segments: Sequence[Segment]
    tokens: list[int]
    tail: ToolTail | None = None

    @cached_property
    def rendered(self) -> bytes:
        """The prompt as text: what keys of saved states are compared with."""
        return join(self.segments)

    def after(self, state: list[int], offset: int, tokenizer: Tokenizer) -> list[int]:
        """The tokens of this prompt for a state of other tokens that stand for its first `offset` bytes: the
        rest is encoded on its own, because tokens may merge across the cut. Spec: kv §7."""
        if self.tokens[: len(state)] == state:
            return self.tokens
        return state + tokenizer.encode_segments(cut(self.segments, offset))
