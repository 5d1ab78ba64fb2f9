"""Metadata values of a GGUF file: reading them within bounds, and string arrays that decode on access.

A vocabulary has 260,000 strings. Their lengths are walked when the file is opened; the text of each is only
decoded when someone asks for it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

import numpy as np
import numpy.typing as npt

from shared.errors import ModelFileError
from shared.gguf.cursor import Cursor, Malformed
from shared.gguf.mapping import shown
from shared.gguf.types import SCALAR_CODES, ValueType

NumericArray: TypeAlias = npt.NDArray[np.generic]
MetadataValue: TypeAlias = (
    "int | float | bool | str | StringArray | NumericArray | list[MetadataValue]"  # list: nested arrays
)

DEEPEST_NESTING = 8
_MOST_NESTED_ARRAYS = 65536
_LENGTH = struct.Struct("<Q")
_STRUCTS = {type: struct.Struct(code) for type, code in SCALAR_CODES.items()}


class StringArray(Sequence[str]):
    """An array of strings that lies encoded in memory. Items are decoded on every access.

    Raises ModelFileError on access to an item that is not UTF-8.
    """

    def __init__(self, key: str, data: bytes, ends: array[int]) -> None:
        self._key = key
        self._data = data  # each item is an 8-byte length and then the text
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[item] for item in range(*index.indices(len(self)))]
        item = index + len(self) if index < 0 else index
        if not 0 <= item < len(self):
            raise IndexError(index)
        start = self._ends[item - 1] if item else 0
        try:
            return self._data[start + 8 : self._ends[item]].decode("utf-8")
        except UnicodeDecodeError:
            raise ModelFileError(f"{shown(self._key)}[{item}] is not UTF-8: the file is damaged") from None

    def __iter__(self) -> Iterator[str]:
        data, start = self._data, 0
        try:
            for end in self._ends:
                yield data[start + 8 : end].decode("utf-8")
                start = end
        except UnicodeDecodeError:
            raise ModelFileError(f"{shown(self._key)} holds text that is not UTF-8: damaged file") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StringArray({self._key!r}, {len(self)} strings)"


class ValueReader:
    """Reads metadata values at a cursor. Faults that do not stop the reading are added to `problems`."""

    def __init__(self, cursor: Cursor, problems: list[str]) -> None:
        self._cursor = cursor
        self._problems = problems
        self._nested = 0

    def value_type(self, key: str) -> ValueType:
        type_id = self._cursor.u32(f"the type of {shown(key)}")
        try:
            return ValueType(type_id)
        except ValueError:
            raise Malformed(
                f"{shown(key)} has the unknown value type {type_id}: the file is damaged"
            ) from None

    def read(self, key: str, type: ValueType) -> tuple[MetadataValue, ValueType | None]:
        """The value at the cursor, and the element type if it is an array."""
        if type is ValueType.ARRAY:
            return self._array(key, depth=1)
        return self._scalar(key, type), None

    def _scalar(self, key: str, type: ValueType) -> int | float | bool | str:
        what = f"the value of {shown(key)}"
        if type is ValueType.STRING:
            length = self._cursor.u64(what)
            # Descriptions are text for people: a wrong byte in one must not make the model unusable.
            return self._cursor.take(length, what).decode("utf-8", "replace")
        value = self._cursor.unpack(_STRUCTS[type], what)
        if type is ValueType.BOOL:
            if value > 1:
                self._problems.append(f"{shown(key)} is a bool with the value {value}: it must be 0 or 1")
            return bool(value)
        return value

    def _array(self, key: str, depth: int) -> tuple[MetadataValue, ValueType]:
        if depth > DEEPEST_NESTING:
            raise Malformed(f"{shown(key)} nests arrays more than {DEEPEST_NESTING} deep")
        element = self.value_type(key)
        count = self._cursor.u64(f"the length of {shown(key)}")
        what = f"the {count} items of {shown(key)}"
        if element is ValueType.STRING:
            self._cursor.need(8 * count, what)
            return self._strings(key, count), element
        if element is ValueType.ARRAY:
            self._cursor.need(12 * count, what)
            self._nested += count
            if self._nested > _MOST_NESTED_ARRAYS:
                raise Malformed(f"{shown(key)} nests more than {_MOST_NESTED_ARRAYS} arrays")
            return [self._array(key, depth + 1)[0] for _ in range(count)], element
        return self._numbers(key, element, count, what), element

    def _numbers(self, key: str, element: ValueType, count: int, what: str) -> NumericArray:
        code = SCALAR_CODES[element]
        data = self._cursor.take(count * _STRUCTS[element].size, what)
        numbers: NumericArray = np.frombuffer(data, dtype=code)
        if element is ValueType.BOOL:
            if count and int(numbers.max()) > 1:
                self._problems.append(f"{shown(key)} holds bools other than 0 and 1")
            return numbers.astype(np.bool_)
        return numbers

    def _strings(self, key: str, count: int) -> StringArray:
        cursor = self._cursor
        buffer, start, limit = cursor.buffer, cursor.position, cursor.limit
        unpack_length = _LENGTH.unpack_from
        ends = array("Q", bytes(8 * count))
        position = start
        last = limit - 8  # where a length may start at the latest
        for item in range(count):
            if position > last:
                position = limit + 1
                break
            position += 8 + unpack_length(buffer, position)[0]
            if position > limit:
                break
            ends[item] = position - start
        cursor.need(position - start, f"the strings of {shown(key)}")
        return StringArray(key, cursor.take(position - start, key), ends)
