"""Finds tool-call blocks in rendered text, and the reasoning that stood before one.

Owns only where a block starts and ends; what it means is the reader's business. The spellings are those that
cache files of every writer use. Spec: kv §8.3. Must not know: ids, files, sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from shared.text import marks

# The tag as it is, with its first bar missing, and without any mark.
_FAMILIES: Final = tuple(mark.encode() for mark in (marks.DSML, marks.DSML[1:], ""))
_START: Final = re.compile(rb"<(%s)tool_calls>" % b"|".join(map(re.escape, _FAMILIES)))
_BLANK_LINE: Final = b"\n\n"

_ASSISTANT: Final = marks.ASSISTANT.encode()
_THINK: Final = marks.THINK.encode()
_THINK_END: Final = marks.THINK_END.encode()
_TURN_ENDS: Final = (marks.EOS.encode(), marks.USER.encode())


class ToolBlock(NamedTuple):
    """A block in a text: the byte offset where it starts, and its bytes, a blank line before it included."""

    start: int
    raw: bytes


def tool_blocks(text: bytes) -> Iterator[ToolBlock]:
    """Every block, in order, none inside another. A start tag without an end tag of its family is text."""
    last_end = {family: text.rfind(_end_tag(family)) for family in _FAMILIES}
    position = 0
    while (start := _START.search(text, position)) is not None:
        # Not a part of the pattern: a search for a fixed first byte is many times as fast.
        blank = text.endswith(_BLANK_LINE, position, start.start())
        begin = start.start() - len(_BLANK_LINE) * blank
        family, position = start[1], start.end()
        if last_end[family] >= position:
            end_tag = _end_tag(family)
            position = text.index(end_tag, position) + len(end_tag)
            yield ToolBlock(begin, text[begin:position])


def reasoning_before(text: bytes, block: ToolBlock) -> str:
    """What the model thought in the answer that `block` belongs to; empty if it did not, or if the text does
    not hold it."""
    mark = text.rfind(_ASSISTANT, 0, block.start)
    answer = text[mark + len(_ASSISTANT) : block.start] if mark >= 0 else b""
    if not answer.startswith(_THINK) or any(end in answer for end in _TURN_ENDS):
        return ""
    # The prompt opens the reasoning; a model that opens it once more does not mean it as a word.
    thinking = answer.removeprefix(_THINK).removeprefix(_THINK)
    return thinking.partition(_THINK_END)[0].decode("utf-8", "replace")


def _end_tag(family: bytes) -> bytes:
    return b"</" + family + b"tool_calls>"
