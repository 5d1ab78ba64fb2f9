"""One tool call as it is read: turns parameters and value pieces into events of one JSON object.

Knows the tool's schema as far as it is declared, and nothing of tags or of how the pieces were cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Final

from shared.text.events import ToolArguments, ToolEnd, ToolLost, ToolStart, TurnEvent
from shared.text.json_stream import escape_string, minify
from shared.text.messages import ToolCall
from shared.text.utf8 import Utf8Stream, to_bytes

# A call that consists of one parameter of such a name often is the whole arguments object in a wrapper.
_WRAPPERS: Final = ("arguments", "input")

Emit = Callable[[TurnEvent], None]


class CallWriter:
    """Builds one call. A call without a readable `name` is lost from the start and emits nothing.

    After `lose()` nothing but one ToolLost is emitted, so the JSON that a client has seen stays open.
    `text` holds everything of the call that a reader should see if it is lost.
    """

    def __init__(
        self,
        index: int,
        id: str,
        name: str | None,
        properties: Collection[str] | None,
        required: Collection[str],
        emit: Emit,
    ) -> None:
        self.index = index
        self.id = id
        self.name = name
        self.properties = properties
        self.repaired = False
        self.lost = name is None
        self.unwrapped = False
        self._required = required
        self._emit = emit
        self._text = bytearray(to_bytes(name or ""))
        self._in_bare_text = False
        self._keys: set[str] = set()
        self._arguments: list[str] = []
        self._held: list[str] | None = None
        self._depth_empty: list[bool] = [True]  # per open object: whether it has no member yet
        self._utf8 = Utf8Stream()
        if name is not None:
            emit(ToolStart(index, id, name))

    @property
    def text(self) -> str:
        return self._text.decode("utf-8", "replace").strip()

    def open_string(self, key: str) -> None:
        self._open(key)
        self._put('"')

    def string(self, data: bytes) -> None:
        """More of a string value, as raw text."""
        self._text += data
        self._put(escape_string(self._utf8.feed(data)))

    def close_string(self) -> None:
        self._put(escape_string(self._utf8.flush()) + '"')

    def open_json(self, key: str) -> None:
        self._open(key)

    def json(self, minified: bytes) -> None:
        """More of a JSON value, checked and minified."""
        if minified:
            self._put(self._utf8.feed(minified))

    def json_source(self, data: bytes) -> None:
        """The same as the model wrote it, for a reader."""
        self._text += data

    def close_json(self, valid: bool) -> None:
        self._put(self._utf8.flush())
        if not valid:
            self.lose()

    def open_object(self, key: str) -> None:
        self._open(key)
        self._put("{")
        self._depth_empty.append(True)

    def close_object(self) -> None:
        self._depth_empty.pop()
        self._put("}")

    def unreadable(self, data: bytes) -> None:
        """Text that belongs to no value: the call cannot be trusted."""
        self._text += data if self._in_bare_text else b"\n" + data
        self._in_bare_text = True
        self.lose()

    def space(self, data: bytes) -> None:
        """White space between tags; it matters only within text that stands there."""
        if self._in_bare_text:
            self._text += data

    def lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._emit(ToolLost(self.index))

    def end(self) -> ToolCall | None:
        """The invoke ends; the call if it is whole."""
        self._unwrap()
        if self.repaired and not self._keys.issuperset(self._required):
            self.lose()
        if self.lost or self.name is None:
            return None
        self._release()
        self._put("{}" if self._depth_empty[0] and not self.unwrapped else "" if self.unwrapped else "}")
        self._emit(ToolEnd(self.index))
        return ToolCall(self.id, self.name, "".join(self._arguments))

    def _open(self, key: str) -> None:
        self._text += to_bytes(f"\n{key}: ")
        self._in_bare_text = False
        self._utf8 = Utf8Stream()
        first, self._depth_empty[-1] = self._depth_empty[-1], False
        lead = "," if not first else "{" if len(self._depth_empty) == 1 else ""
        if len(self._depth_empty) == 1:
            self._keys.add(key)
            if first and key in _WRAPPERS and self.properties is not None and key not in self.properties:
                self._held = []
            else:
                self._release()
        self._put(f'{lead}"{escape_string(key)}":')

    def _put(self, fragment: str) -> None:
        if self.lost or not fragment:
            return
        if self._held is not None:
            self._held.append(fragment)
            return
        self._arguments.append(fragment)
        self._emit(ToolArguments(self.index, fragment))

    def _release(self) -> None:
        held, self._held = self._held, None
        self._put("".join(held or ()))

    def _unwrap(self) -> None:
        """If all there is is a wrapped object, it is the arguments."""
        if self._held is None or self.lost:
            return
        value = "".join(self._held[1:])
        if value.startswith('"'):
            value = minify(json.loads(value)) or ""
        if value.startswith("{"):
            self._held = [value]
            self.unwrapped = True
            self._keys = set(json.loads(value, parse_int=str, parse_float=str))
