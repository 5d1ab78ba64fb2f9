"""Writes tool calls in the one canonical spelling. Reading what models write is another file's work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from shared.text import marks
from shared.text.messages import ToolCall
from shared.text.segments import Segment, SegmentKind, join
from shared.text.utf8 import to_bytes

_M: Final = marks.DSML
BLOCK_OPEN: Final = f"\n\n<{_M}tool_calls>\n"
BLOCK_CLOSE: Final = f"</{_M}tool_calls>"
INVOKE_OPEN: Final = f'<{_M}invoke name="'
NAME_CLOSE: Final = '">\n'
INVOKE_CLOSE: Final = f"</{_M}invoke>\n"
PARAMETER_END: Final = f"</{_M}parameter>"
PARAMETER_END_ESCAPED: Final = f"&lt;/{_M}parameter>"

_ATTRIBUTE_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_SPACE_OUTSIDE_STRINGS: Final = re.compile(rf"({_STRING})|[ \t\n\r]+", re.DOTALL)
_JSON_TOKEN: Final = re.compile(rf'{_STRING}|[\[\]{{}}:,]|[^\[\]{{}}:,"]+', re.DOTALL)


def write_block(calls: Sequence[ToolCall]) -> list[Segment]:
    """The block of `calls` as segments: tags are CONTROL, names, keys and values are TEXT.

    Strings are written literally with only the closing tag escaped, other JSON minified with its number
    spelling; members keep their order, repeated keys stay. Arguments that are not one JSON object become one
    string parameter `arguments`; blank ones give no parameter.
    """
    segments = [_control(BLOCK_OPEN)]
    for call in calls:
        segments += [_control(INVOKE_OPEN), _text(attribute(call.name)), _control(NAME_CLOSE)]
        for key, value, is_string in _parameters(call.arguments):
            flag = "true" if is_string else "false"
            segments += [
                _control(f'<{_M}parameter name="'),
                _text(attribute(key)),
                _control(f'" string="{flag}">'),
                _text(value),
                _control(f"{PARAMETER_END}\n"),
            ]
        segments.append(_control(INVOKE_CLOSE))
    segments.append(_control(BLOCK_CLOSE))
    return segments


def canonical_block(calls: Sequence[ToolCall]) -> bytes:
    """The bytes of `write_block`, leading blank line included."""
    return join(write_block(calls))


def attribute(value: str) -> str:
    """A name or key as it stands between the quotation marks of a tag."""
    return value.translate(_ATTRIBUTE_ENTITIES)


def _parameters(arguments: str) -> Iterator[tuple[str, str, bool]]:
    """(key, value as written, whether it is a string) of each parameter."""
    if not arguments.strip():
        return
    members = _members(arguments)
    if members is None:
        yield "arguments", _escape_end(arguments), True
        return
    for key, value in members:
        if value.startswith('"'):
            yield json.loads(key), _escape_end(json.loads(value)), True
        else:
            # A closing tag can only stand inside one of the value's JSON strings.
            yield json.loads(key), value.replace(PARAMETER_END, "\\u003c" + PARAMETER_END[1:]), False


def _members(text: str) -> list[tuple[str, str]] | None:
    """The members of the JSON object `text` as minified source, or None if it is anything else."""
    try:
        value = json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    minified = _SPACE_OUTSIDE_STRINGS.sub(lambda match: match[1] or "", text)
    return list(_split_members(minified))


def _split_members(minified: str) -> Iterator[tuple[str, str]]:
    """Cuts a valid minified object at the colons and commas of its own level."""
    depth = 0
    key = ""
    start = 1
    for match in _JSON_TOKEN.finditer(minified):
        token = match[0]
        if token in ("{", "["):
            depth += 1
        elif token in ("}", "]"):
            depth -= 1
        if depth == 1 and token == ":":
            key = minified[start : match.start()]
            start = match.end()
        elif key and ((depth == 1 and token == ",") or depth == 0):
            yield key, minified[start : match.start()]
            key = ""
            start = match.end()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _escape_end(value: str) -> str:
    return value.replace(PARAMETER_END, PARAMETER_END_ESCAPED)


def _control(text: str) -> Segment:
    return Segment(to_bytes(text), SegmentKind.CONTROL)


def _text(text: str) -> Segment:
    return Segment(to_bytes(text), SegmentKind.TEXT)
