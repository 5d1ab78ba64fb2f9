"""Recognises one tag or control string at one place in bytes: found, none, or more bytes needed.

Owns every spelling that models produce: the marked tags (`<｜DSML｜invoke name="x">`, also with doubled,
missing or ASCII bars and single spaces), the plain ones (`<invoke name="x">`) and the foreign ones of other
dialects. Knows nothing of where a tag is allowed, of code, or of what a block means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shared.text import marks

# A tag, from `<` to `>`, that is longer than this is text.
TAG_LIMIT: Final = 512
# The same for what a plain opener needs to be sure: itself, white space and the tag behind it.
_OPENER_LIMIT: Final = 3 * TAG_LIMIT
CANONICAL_WRAPPER: Final = f"<{marks.DSML}tool_calls>".encode()

SPACE: Final = b" \t\r\n"
_FULL_BAR: Final = "｜".encode()
_ASCII_BAR: Final = ord("|")
_LESS: Final = ord("<")
_SLASH: Final = ord("/")
_BLANK: Final = ord(" ")

_WORD: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_.:-]*")
_GENERIC: Final = re.compile(rb"<(/?)([A-Za-z_][A-Za-z0-9_.:-]*)")
_NAME: Final = re.compile(rb'(?<![A-Za-z0-9_-])name="([^"]*)"')
_STRING: Final = re.compile(rb'(?<![A-Za-z0-9_-])string="([^"]*)"')
_ENTITY: Final = re.compile(r"&(amp|lt|gt|quot|apos);")
_ENTITY_TEXT: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_FUNCTION_NAME: Final = re.compile(rb"<function>[ \t\r\n]*<name>([^<>]*)</name>")
_FUNCTION_HEAD: Final = b"<function>"

_CONTROL: Final = tuple(sorted((text.encode() for text in marks.ALL), key=len, reverse=True))
_CONTROL_PATTERN: Final = re.compile(b"|".join(re.escape(text) for text in _CONTROL))
_CONTROL_STARTS: Final = frozenset(text[:size] for text in _CONTROL for size in range(1, len(text)))
_CONTROL_LIMIT: Final = max(len(text) for text in _CONTROL)
_PLAIN_OPENERS: Final = (b"<tool_calls", b"<function_calls", b"<invoke", _FUNCTION_HEAD)


class TagKind(Enum):
    """What a tag is in a block; FOREIGN tags belong to another dialect, CONTROL is no tag at all."""

    WRAPPER = "wrapper"
    INVOKE = "invoke"
    PARAMETER = "parameter"
    FOREIGN = "foreign"
    CONTROL = "control"


class Need(Enum):
    """The answer when the bytes so far fit but do not decide."""

    MORE = "more"


_PLAIN_KINDS: Final = {
    b"tool_calls": TagKind.WRAPPER,
    b"function_calls": TagKind.WRAPPER,
    b"invoke": TagKind.INVOKE,
    b"parameter": TagKind.PARAMETER,
}


@dataclass(frozen=True, slots=True)
class Tag:
    """A recognised tag: `raw` is all of it, `head` what stands between `<` or `</` and its attributes.

    `mark` is the M of a marked tag as it was spelt, empty for a plain one; `word` is the tag's own name.
    `given_name` is set when the name stood in an element of its own (`<function><name>x</name>`).
    """

    raw: bytes
    kind: TagKind
    closing: bool = False
    mark: bytes = b""
    head: bytes = b""
    word: bytes = b""
    given_name: str | None = None

    @property
    def marked(self) -> bool:
        return bool(self.mark)

    @property
    def closer(self) -> bytes:
        """The exact closing tag of this opener."""
        return b"</" + self.head + b">"

    @property
    def name(self) -> str | None:
        """The decoded `name` attribute; None if it is missing or empty."""
        if self.given_name is not None:
            return self.given_name or None
        match = _NAME.search(self.raw)
        return unescape_entities(match[1].decode("utf-8", "replace")) or None if match else None

    @property
    def is_string(self) -> bool | None:
        """The `string` attribute: False for `false`, True for any other value, None if missing."""
        match = _STRING.search(self.raw)
        return match[1] != b"false" if match else None


Answer = Tag | Need | None


def unescape_entities(text: str) -> str:
    """Decode the five named XML entities in one pass; everything else stays."""
    return _ENTITY.sub(lambda match: _ENTITY_TEXT[match[1]], text)


def control_string(data: bytes, pos: int) -> Answer:
    """One of the model's control strings at `pos`."""
    match = _CONTROL_PATTERN.match(data, pos)
    if match:
        return Tag(match[0], TagKind.CONTROL)
    return Need.MORE if data[pos : pos + _CONTROL_LIMIT] in _CONTROL_STARTS else None


def marked_tag(data: bytes, pos: int, *, final: bool = False, closing_only: bool = False) -> Answer:
    """A marked tag at `pos`. With `final` nothing follows `data`: an unfinished tag counts as finished."""
    try:
        head = _marked_head(_Cursor(data, pos), closing_only)
    except _Incomplete:
        return Need.MORE
    if head is None:
        return None
    closing, mark, start, word_start = head
    end = _tag_end(data, pos, word_start, final)
    if not isinstance(end, int):
        return end
    word = _WORD.match(data, word_start, end)
    assert word is not None
    initial = word[0][:1].lower()
    kind = {b"p": TagKind.PARAMETER, b"i": TagKind.INVOKE}.get(initial, TagKind.WRAPPER)
    return Tag(data[pos:end], kind, closing, mark, data[start : word.end()], word[0])


def stray_markup(data: bytes, pos: int, *, final: bool = False) -> Answer:
    """What may never be shown outside code: a control string or a marked tag."""
    control = control_string(data, pos)
    if isinstance(control, Tag) or data[pos] != _LESS:
        return control
    return marked_tag(data, pos, final=final) or control


def plain_tag(data: bytes, pos: int, *, final: bool = False) -> Answer:
    """An unmarked tag at `pos`, one of ours by its exact name or a foreign one."""
    match = _GENERIC.match(data, pos)
    if not match:
        return Need.MORE if data[pos:] in (b"<", b"</") else None
    if data.startswith(_FUNCTION_HEAD, pos):
        return _function(data, pos)
    end = _tag_end(data, pos, match.end(), final=False)
    if not isinstance(end, int):
        return end
    kind = _PLAIN_KINDS.get(match[2], TagKind.FOREIGN)
    if match[2] == b"function" and match[1]:
        kind = TagKind.INVOKE
    return Tag(data[pos:end], kind, bool(match[1]), b"", match[2], match[2])


def block_tag(data: bytes, pos: int, *, final: bool = False) -> Answer:
    """Any tag or control string that may stand between the values of a block."""
    stray = stray_markup(data, pos, final=final)
    if isinstance(stray, Tag) or data[pos] != _LESS:
        return stray
    return plain_tag(data, pos, final=final) or stray


def value_closer(data: bytes, pos: int, plain: Collection[bytes], *, final: bool = False) -> Answer:
    """A closing tag that may end a value: a marked one, or exactly one of `plain`."""
    for text in plain:
        if data.startswith(text, pos):
            return Tag(text, _PLAIN_KINDS.get(text[2:-1], TagKind.INVOKE), True, b"", text[2:-1], text[2:-1])
    marked = marked_tag(data, pos, final=final, closing_only=True)
    if marked is None and not final:
        start = data[pos : pos + len(b"</function_calls>")]
        return Need.MORE if any(text.startswith(start) for text in plain) else None
    return marked


def plain_opener(data: bytes, pos: int, allowed: Callable[[str], bool]) -> Answer:
    """A plain tag at `pos` that opens a block: a wrapper with an invoke behind it, or an allowed invoke."""
    start = data[pos : pos + len(b"<function_calls")]
    if not start.startswith(_PLAIN_OPENERS):
        return Need.MORE if any(text.startswith(start) for text in _PLAIN_OPENERS) else None
    tag = plain_tag(data, pos)
    if not isinstance(tag, Tag):
        return tag
    if tag.kind is TagKind.WRAPPER:
        return _wrapper_opener(data, pos, tag)
    known = tag.kind is TagKind.INVOKE and tag.name is not None and allowed(tag.name)
    return tag if known else None


def _wrapper_opener(data: bytes, pos: int, wrapper: Tag) -> Answer:
    after = pos + len(wrapper.raw)
    while after < len(data) and data[after] in SPACE:
        after += 1
    if after - pos > _OPENER_LIMIT:
        return None
    following = block_tag(data, after) if after < len(data) else Need.MORE
    if isinstance(following, Tag):
        return wrapper if following.kind is TagKind.INVOKE and not following.closing else None
    return following


class _Incomplete(Exception):
    """The data ended while everything fitted."""


class _Cursor:
    """Reads the optional pieces of a marked tag's head."""

    def __init__(self, data: bytes, pos: int) -> None:
        self.data = data
        self.pos = pos

    def peek(self) -> int:
        if self.pos >= len(self.data):
            raise _Incomplete
        return self.data[self.pos]

    def accept(self, byte: int) -> bool:
        found = self.peek() == byte
        self.pos += found
        return found

    def literal(self, text: bytes) -> bool:
        part = self.data[self.pos : self.pos + len(text)]
        if part == text:
            self.pos += len(text)
            return True
        if len(part) < len(text) and text.startswith(part):
            raise _Incomplete
        return False

    def bars(self) -> int:
        count = 0
        while count < 2 and (self.accept(_ASCII_BAR) or self.literal(_FULL_BAR)):
            count += 1
        return count


def _marked_head(cursor: _Cursor, closing_only: bool) -> tuple[bool, bytes, int, int] | None:
    """(closing, mark, where the head starts, where the word starts), or None if it is no marked tag."""
    if not cursor.accept(_LESS):
        return None
    cursor.accept(_BLANK)
    closing = cursor.accept(_SLASH)
    if closing:
        cursor.accept(_BLANK)
    start = cursor.pos
    bars = cursor.bars()
    if bars:
        cursor.accept(_BLANK)
    if not cursor.literal(b"DSML"):
        return None
    mark_end = cursor.pos
    cursor.accept(_BLANK)
    after = cursor.bars()
    if after:
        mark_end = cursor.pos
        cursor.accept(_BLANK)
    if not bars and not after:
        return None
    if not closing:
        closing = cursor.accept(_SLASH)
        if closing:
            cursor.accept(_BLANK)
    letter = cursor.peek()
    if not (ord("a") <= letter | 0x20 <= ord("z")) or (closing_only and not closing):
        return None
    return closing, cursor.data[start:mark_end], start, cursor.pos


def _tag_end(data: bytes, pos: int, search_from: int, final: bool) -> int | Need | None:
    end = data.find(b">", search_from, pos + TAG_LIMIT)
    if end >= 0:
        return end + 1
    if len(data) - pos >= TAG_LIMIT:
        return None
    return len(data) if final else Need.MORE


def _function(data: bytes, pos: int) -> Answer:
    """`<function>` with its `<name>` element; without one it is a foreign tag."""
    match = _FUNCTION_NAME.match(data, pos, pos + TAG_LIMIT)
    if match:
        name = match[1].decode("utf-8", "replace").strip()
        return Tag(match[0], TagKind.INVOKE, False, b"", b"function", b"function", unescape_entities(name))
    foreign = Tag(_FUNCTION_HEAD, TagKind.FOREIGN, False, b"", b"function", b"function")
    part = data[pos + len(_FUNCTION_HEAD) : pos + TAG_LIMIT].lstrip(SPACE)
    if len(data) - pos >= TAG_LIMIT:
        return foreign
    if part.startswith(b"<name>"):
        text, less, tail = part[len(b"<name>") :].partition(b"<")
        return Need.MORE if b">" not in text and b"</name>".startswith(less + tail) else foreign
    return Need.MORE if b"<name>".startswith(part) else foreign
