"""Reads one parameter value up to the tag that ends it, in bounded steps and in any cuts.

Owns where a value ends: its closing tag in any spelling, or closing tags further out when only such tags or
the next invoke follow. Knows nothing of the tags between values.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, Literal, Protocol

from shared.text.byte_source import ByteSource
from shared.text.dsml_call import CallWriter
from shared.text.dsml_tags import (
    SPACE,
    Need,
    Tag,
    TagKind,
    block_tag,
    unescape_entities,
    value_closer,
)
from shared.text.json_stream import JsonMinifier

Unescape = Literal["closing-tag-only", "entities"]

_PLAIN_END: Final = b"</parameter>"
# A marked opener may be closed by the plain tag too; a plain one by any of these.
_PLAIN_ENDS_MARKED: Final = (_PLAIN_END,)
_PLAIN_ENDS_PLAIN: Final = (_PLAIN_END, b"</invoke>", b"</tool_calls>", b"</function_calls>", b"</function>")
_ENTITY: Final = re.compile(rb"&(?:amp|lt|gt|quot|apos);")
_ENTITIES: Final = (b"&amp;", b"&lt;", b"&gt;", b"&quot;", b"&apos;")


class DecodeState(Enum):
    """What the next byte belongs to, for choosing how to sample it."""

    OUTSIDE = "outside"
    STRUCTURAL = "structural"
    STRING_BODY = "string body"
    JSON_STRUCTURAL = "json structural"
    JSON_STRING = "json string"


class Body(Protocol):
    """Where the bytes of a value go."""

    @property
    def quoted(self) -> bool:
        """Inside a JSON string, where tags are text."""
        ...

    @property
    def state(self) -> DecodeState: ...

    def write(self, data: bytes) -> int:
        """Take `data`; returns how many bytes were taken, fewer only at a line break in a JSON string."""
        ...

    def close(self) -> None: ...


class StringBody:
    """A `string="true"` value: literal text but for the escaped closing tag."""

    quoted = False
    state = DecodeState.STRING_BODY

    def __init__(self, call: CallWriter, opener: Tag, unescape: Unescape) -> None:
        self._call = call
        self._pending = b""
        closer = opener.closer
        if unescape == "entities":
            self._escapes: tuple[bytes, ...] = _ENTITIES
            self._pattern = _ENTITY
        else:
            self._escapes = (b"&lt;" + closer[1:],)
            self._pattern = re.compile(re.escape(self._escapes[0]))

    def write(self, data: bytes) -> int:
        text = self._pending + data
        keep = text.rfind(b"&", max(0, len(text) - max(map(len, self._escapes)) + 1))
        if keep >= 0 and any(escape.startswith(text[keep:]) for escape in self._escapes):
            text, self._pending = text[:keep], text[keep:]
        else:
            self._pending = b""
        self._call.string(self._pattern.sub(_decoded, text))
        return len(data)

    def close(self) -> None:
        self._call.string(self._pending)
        self._call.close_string()


def _decoded(match: re.Match[bytes]) -> bytes:
    if match[0].startswith(b"&lt;"):
        return b"<" + match[0][4:]
    return unescape_entities(match[0].decode()).encode()


class JsonBody:
    """Any other value: JSON, minified and checked."""

    def __init__(self, call: CallWriter) -> None:
        self._call = call
        self._minifier = JsonMinifier()
        # Bytes of the open string from its first `<`: a line break makes tags in it count after all.
        self.suspect: bytearray | None = None
        self._broken = False

    @property
    def quoted(self) -> bool:
        return self._minifier.in_string and not self._broken

    @property
    def state(self) -> DecodeState:
        return DecodeState.JSON_STRING if self._minifier.in_string else DecodeState.JSON_STRUCTURAL

    def write(self, data: bytes) -> int:
        if self._broken:
            self._call.json_source(data)
            return len(data)
        if self.quoted and data[:1] == b"<" and self.suspect is None:
            self.suspect = bytearray()
        strings = self._minifier.strings
        taken = self._minifier.feed(data)
        self._call.json_source(data[:taken])
        self._call.json(self._minifier.take())
        if not self._minifier.in_string or self._minifier.strings != strings:
            self.suspect = None
        elif self.suspect is not None:
            self.suspect += data[:taken]
        return taken

    def break_string(self) -> None:
        """The open string holds a line break: no JSON, and nothing in it is quoted any more."""
        self._broken = True
        self.suspect = None
        self._minifier.fault()

    def close(self) -> None:
        valid = self._minifier.finish()
        self._call.json(self._minifier.take())
        self._call.close_json(valid)


class ValueReader:
    """Reads a value after its opening tag. `closer` is the tag that ended it, None if one further out did."""

    def __init__(self, opener: Tag, body: Body) -> None:
        self.closer: Tag | None = None
        self._opener = opener
        self._body = body
        self._plain = _PLAIN_ENDS_MARKED if opener.marked else _PLAIN_ENDS_PLAIN
        self._partial = 0  # bytes of a tag that has begun
        self._ahead: _Lookahead | None = None

    @property
    def state(self) -> DecodeState:
        if self._ahead or (self._partial >= 2 and not self._body.quoted):
            return DecodeState.STRUCTURAL
        return self._body.state

    def step(self, source: ByteSource, final: bool) -> bool:
        """Read on; True when the value has ended, False when more bytes are needed."""
        self._partial = 0
        while True:
            if self._ahead:
                ended = self._look(source, self._ahead, final)
                if ended is not None:
                    return ended
            less = source.window.find(b"<", source.pos)
            if not self._write(source, less if less >= 0 else len(source.window)):
                continue
            if less < 0:
                return False
            if self._body.quoted:
                self._write(source, less + 1)
                continue
            tag = value_closer(source.window, less, self._plain, final=final)
            if tag is Need.MORE:
                self._partial = len(source.rest.replace(b" ", b""))
                return False
            if not isinstance(tag, Tag):
                self._write(source, less + 1)
            elif self._ends(tag):
                source.take(less + len(tag.raw))
                return self._finish(tag)
            else:
                self._ahead = _Lookahead(tag, bytearray(source.take(less + len(tag.raw))))

    def close(self, source: ByteSource) -> None:
        """The turn ends inside the value: what was read is all of it."""
        if self._ahead:
            self._body.write(bytes(self._ahead.seen))
        rest = source.take(len(source.window))
        if b"DSML" not in rest:
            self._body.write(rest)
        self._body.close()

    def _ends(self, tag: Tag) -> bool:
        """Whether a closing tag ends the value whatever follows."""
        return tag.kind is TagKind.PARAMETER and (tag.marked or not self._opener.marked)

    def _finish(self, closer: Tag | None) -> bool:
        self.closer = closer
        self._body.close()
        return True

    def _write(self, source: ByteSource, end: int) -> bool:
        """Hand the window up to `end` to the body; False if the source was changed by a broken string."""
        body = self._body
        start = source.pos
        if start == end:
            return True
        taken = body.write(source.window[start:end])
        source.take(start + taken)
        if source.pos == end or not isinstance(body, JsonBody):
            return True
        suspect = bytes(body.suspect or b"")
        body.break_string()
        closer = self._first_closer(suspect)
        if closer is not None:
            source.push_back(suspect[closer:])
        return False

    def _first_closer(self, data: bytes) -> int | None:
        less = data.find(b"<")
        while less >= 0:
            if isinstance(value_closer(data, less, self._plain), Tag):
                return less
            less = data.find(b"<", less + 1)
        return None

    def _look(self, source: ByteSource, ahead: _Lookahead, final: bool) -> bool | None:
        """Follow closing tags until it is known whether the first one ends the value.

        True: it ended. False: more bytes are needed. None: it did not, go on reading the value.
        """
        while True:
            window = source.window
            start = source.pos
            while start < len(window) and window[start] in SPACE:
                start += 1
            ahead.seen += source.take(start)
            if start == len(window):
                return self._end_ahead(source, ahead) if final else False
            tag = block_tag(window, start, final=final) if window[start] == ord("<") else None
            if tag is Need.MORE and not final:
                return False
            if isinstance(tag, Tag) and self._ends(tag) and tag.closing:
                self._write_seen(ahead)
                source.take(start + len(tag.raw))
                return self._finish(tag)
            if isinstance(tag, Tag) and self._decides(tag, ahead):
                return self._end_ahead(source, ahead)
            if not isinstance(tag, Tag) or not tag.closing:
                self._write_seen(ahead)
                return None
            ahead.seen += source.take(start + len(tag.raw))

    def _decides(self, tag: Tag, ahead: _Lookahead) -> bool:
        """Whether a tag behind the tentative end proves that the value ended there."""
        if ahead.first.kind is TagKind.PARAMETER:
            return tag.marked
        return not tag.closing and tag.kind is TagKind.INVOKE and (tag.marked or not self._opener.marked)

    def _write_seen(self, ahead: _Lookahead) -> None:
        self._ahead = None
        self._body.write(bytes(ahead.seen))

    def _end_ahead(self, source: ByteSource, ahead: _Lookahead) -> bool:
        self._ahead = None
        if ahead.first.kind is TagKind.PARAMETER:
            source.push_back(bytes(ahead.seen[len(ahead.first.raw) :]))
            return self._finish(ahead.first)
        source.push_back(bytes(ahead.seen))
        return self._finish(None)


class _Lookahead:
    """A closing tag that may or may not end the value, and everything read since."""

    def __init__(self, first: Tag, seen: bytearray) -> None:
        self.first = first
        self.seen = seen
