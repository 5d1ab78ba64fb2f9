"""Reads a script from disk: every fault becomes one line with the place in the file and the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.errors import UsageError
from shared.scripted.script import Script

LARGEST_SCRIPT = 64 << 20

# Our own words for what pydantic says about its own terms.
_REASONS = {
    "extra_forbidden": "there is no such key here",
    "missing": "this key is missing",
    "model_type": "an object is needed here",
    "string_unicode": "half of a surrogate pair has no bytes: write the bytes as hex",
}

# From a value's place in the document, keys and indexes from the root, to its line.
Lines = dict[tuple[str | int, ...], int]


def read_script(path: str | os.PathLike[str]) -> Script:
    """The script in a JSON file. Raises UsageError, naming the file, the line and the reason."""
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST_SCRIPT:
            raise UsageError(f"{file} is larger than {LARGEST_SCRIPT >> 20} MiB: too large for a script")
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read the script {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{file}, line {line}: the script is not UTF-8") from error
    return parse_script(text, str(file))


def parse_script(text: str, name: str = "script") -> Script:
    """The script in a JSON text; `name` stands for it in errors."""
    try:
        document = json.loads(text)
        lines = _Walk(text).lines
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: the script is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    try:
        return Script.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path, line = _place(first["loc"], lines)
        message = _reason(first["type"], first["msg"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UsageError(f"{name}, line {line}: {path + ': ' if path else ''}{message}{more}") from error


def _reason(kind: str, message: str) -> str:
    return _REASONS.get(kind, message[:1].lower() + message[1:])


def _place(location: Sequence[str | int], lines: Lines) -> tuple[str, int]:
    """How to name a place, and its line: that of the nearest part that the document has."""
    keys = tuple(key for key in location if not (isinstance(key, str) and key.startswith("<")))
    name = ""
    for key in keys:
        name += f"[{key}]" if isinstance(key, int) else f"{'.' if name else ''}{key}"
    known = keys
    while known not in lines:
        known = known[:-1]
    return name, lines[known]


class _Walk:
    """Walks a text that is known to be valid JSON and notes on which line each value begins; refuses a
    key that stands twice in one object, because JSON readers would silently take the last."""

    def __init__(self, text: str) -> None:
        self.lines: Lines = {}
        self._text = text
        self._decoder = json.JSONDecoder()
        self._counted = (0, 1)  # an offset and its line
        self._value(0, ())

    def _line(self, offset: int) -> int:
        start, line = self._counted
        self._counted = (offset, line + self._text.count("\n", start, offset))
        return self._counted[1]

    def _skip(self, offset: int) -> int:
        while offset < len(self._text) and self._text[offset] in " \t\n\r,:":
            offset += 1
        return offset

    def _value(self, offset: int, path: tuple[str | int, ...]) -> int:
        offset = self._skip(offset)
        self.lines[path] = self._line(offset)
        if self._text[offset] == "{":
            return self._object(offset + 1, path)
        if self._text[offset] == "[":
            return self._array(offset + 1, path)
        return self._scalar(offset)[1]

    def _object(self, offset: int, path: tuple[str | int, ...]) -> int:
        while self._text[offset := self._skip(offset)] != "}":
            key, end = self._scalar(offset)
            if (*path, key) in self.lines:
                raise json.JSONDecodeError(f'the key "{key}" stands twice', self._text, offset)
            offset = self._value(end, (*path, key))
        return offset + 1

    def _array(self, offset: int, path: tuple[str | int, ...]) -> int:
        index = 0
        while self._text[offset := self._skip(offset)] != "]":
            offset = self._value(offset, (*path, index))
            index += 1
        return offset + 1

    def _scalar(self, offset: int) -> tuple[Any, int]:
        if self._text.startswith(("NaN", "Infinity", "-Infinity"), offset):
            raise json.JSONDecodeError("this is not a JSON number", self._text, offset)
        return self._decoder.raw_decode(self._text, offset)
