"""The tokens with which a tool call is forced: our own renderer's opener, up to the end of the tool's name.

Knows no schema: what follows the name is the model's own, greedy in its syntax as in every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.constrain.grammar import Grammar, one_of
from shared.text.dsml_write import BLOCK_OPEN, INVOKE_OPEN, NAME_CLOSE, attribute
from shared.text.segments import Segment, SegmentKind
from shared.text.tokenizer import Tokenizer
from shared.text.utf8 import to_bytes

_BEFORE_NAME: Final = '="'


@dataclass(frozen=True, slots=True)
class CallOpener:
    """`tokens` come first, then a text of `names` where several tools may be called."""

    tokens: tuple[int, ...]
    names: Grammar | None


def call_opener(tokenizer: Tokenizer, names: Sequence[str]) -> CallOpener:
    """The opener of a call of one of the tools `names`, as tokens of the canonical block."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) == 1:
        segments = [
            Segment(to_bytes(BLOCK_OPEN + INVOKE_OPEN), SegmentKind.CONTROL),
            Segment(to_bytes(attribute(distinct[0])), SegmentKind.TEXT),
            Segment(to_bytes(NAME_CLOSE), SegmentKind.CONTROL),
        ]
        return CallOpener(tuple(tokenizer.encode_segments(segments)), None)
    # The quotation mark may become part of a name's first token: it is left to the choice.
    before = INVOKE_OPEN.removesuffix(_BEFORE_NAME)
    segments = [Segment(to_bytes(BLOCK_OPEN + before), SegmentKind.CONTROL)]
    choice = one_of([f"{_BEFORE_NAME}{attribute(name)}{NAME_CLOSE}" for name in distinct])
    return CallOpener(tuple(tokenizer.encode_segments(segments)), choice)
