"""JSON that arrives in pieces: checks it strictly and drops the white space between its tokens.

Knows nothing of tool calls. Number spelling, key order and repeated keys are kept.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Final

# Deeper values cannot be handed to clients that parse recursively; longer numbers neither.
MAX_DEPTH: Final = 200
MAX_ATOM: Final = 4000

_SPACE: Final = b" \t\r\n"
_ATOM_BYTES: Final = re.compile(rb"[0-9A-Za-z+.-]+")
_ATOM: Final = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")
_PLAIN_STRING: Final = re.compile(rb'[^"\\\x00-\x1f]+')
_LENIENT_STRING: Final = re.compile(rb'[^"\\\r\n]+')
_ESCAPES: Final = b'"\\/bfnrt'
_HEX: Final = b"0123456789abcdefABCDEF"
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")


def escape_string(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class _Expect(Enum):
    VALUE = "value"
    FIRST_VALUE = "value or ]"
    FIRST_KEY = "key or }"
    KEY = "key"
    COLON = "colon"
    MORE = "comma or closing bracket"
    END = "nothing"


class JsonMinifier:
    """One JSON value, fed in pieces. After a fault `valid` is False and only strings are still followed."""

    def __init__(self) -> None:
        self.valid = True
        self.in_string = False
        self.strings = 0  # opened so far
        self._expect = _Expect.VALUE
        self._closers = bytearray()
        self._atom = bytearray()
        self._is_key = False
        self._escaped = False
        self._hex_left = 0
        self._out = bytearray()

    def feed(self, data: bytes, pos: int = 0) -> int:
        """Read `data` from `pos`; returns where it stopped, the end or a line break inside a string."""
        end = len(data)
        while pos < end:
            if self.in_string:
                if data[pos] in b"\r\n":
                    break
                pos = self._string(data, pos)
            else:
                pos = self._structure(data, pos)
        return pos

    def take(self) -> bytes:
        """The minified bytes that are certain since the last call."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def finish(self) -> bool:
        """The value ends here: whether it is one whole valid JSON value."""
        self._end_atom()
        self.valid = self.valid and self._expect is _Expect.END and not self.in_string
        return self.valid

    def fault(self) -> None:
        """The text is not JSON."""
        self.valid = False

    def _structure(self, data: bytes, pos: int) -> int:
        byte = data[pos]
        match = _ATOM_BYTES.match(data, pos)
        if match:
            if len(self._atom) <= MAX_ATOM:
                self._atom += match[0]
            return match.end()
        self._end_atom()
        if byte in _SPACE:
            return pos + 1
        if byte == _QUOTE:
            self._open_string()
        elif self.valid:
            self._bracket(byte)
        return pos + 1

    def _open_string(self) -> None:
        self._is_key = self._expect in (_Expect.KEY, _Expect.FIRST_KEY)
        if not self._is_key and self._expect not in (_Expect.VALUE, _Expect.FIRST_VALUE):
            self.fault()
        self.in_string = True
        self.strings += 1
        self._put(b'"')

    def _bracket(self, byte: int) -> None:
        expect = self._expect
        if byte in b"[{" and expect in (_Expect.VALUE, _Expect.FIRST_VALUE):
            if len(self._closers) == MAX_DEPTH:
                return self.fault()
            self._closers.append(byte + 2)  # both closing brackets lie two behind their openers
            self._expect = _Expect.FIRST_KEY if byte == ord("{") else _Expect.FIRST_VALUE
        elif byte == ord(":") and expect is _Expect.COLON:
            self._expect = _Expect.VALUE
        elif byte == ord(",") and expect is _Expect.MORE:
            self._expect = _Expect.KEY if self._closers[-1] == ord("}") else _Expect.VALUE
        elif self._closers and byte == self._closers[-1] and self._may_close():
            self._closers.pop()
            self._value_done()
        else:
            return self.fault()
        return self._put(bytes((byte,)))

    def _may_close(self) -> bool:
        first = _Expect.FIRST_KEY if self._closers[-1] == ord("}") else _Expect.FIRST_VALUE
        return self._expect in (_Expect.MORE, first)

    def _end_atom(self) -> None:
        if not self._atom:
            return
        expected = self._expect in (_Expect.VALUE, _Expect.FIRST_VALUE)
        if expected and len(self._atom) <= MAX_ATOM and _ATOM.fullmatch(self._atom):
            self._put(self._atom)
            self._value_done()
        else:
            self.fault()
        self._atom.clear()

    def _value_done(self) -> None:
        self._expect = _Expect.MORE if self._closers else _Expect.END

    def _string(self, data: bytes, pos: int) -> int:
        if self._escaped:
            return self._escape(data, pos)
        if self._hex_left:
            self._hex_left -= 1
            if data[pos] not in _HEX:
                self.fault()
                self._hex_left = 0
                return pos
            self._put(data[pos : pos + 1])
            return pos + 1
        match = (_PLAIN_STRING if self.valid else _LENIENT_STRING).match(data, pos)
        if match:
            self._put(match[0])
            return match.end()
        byte = data[pos]
        if byte == _QUOTE:
            self.in_string = False
            self._put(b'"')
            if self._is_key:
                self._expect = _Expect.COLON
            else:
                self._value_done()
        elif byte == _BACKSLASH:
            self._escaped = True
            self._put(b"\\")
        else:
            self.fault()
        return pos + 1

    def _escape(self, data: bytes, pos: int) -> int:
        self._escaped = False
        if data[pos] == ord("u"):
            self._hex_left = 4
        elif data[pos] not in _ESCAPES:
            self.fault()
        self._put(data[pos : pos + 1])
        return pos + 1

    def _put(self, data: bytes | bytearray) -> None:
        if self.valid:
            self._out += data


def minify(text: str) -> str | None:
    """`text` without white space between tokens, or None if it is not one valid JSON value."""
    minifier = JsonMinifier()
    data = text.encode("utf-8", "surrogatepass")
    if minifier.feed(data) < len(data) or not minifier.finish():
        return None
    return minifier.take().decode("utf-8", "surrogatepass")
