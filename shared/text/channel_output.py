"""The last stage of reasoning and of content: bytes that are certain become text deltas.

Holds back an incomplete UTF-8 sequence and, when a tool-call block may follow, trailing white space, which
belongs to neither side if one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shared.text.events import TextDelta, ThinkingDelta, TurnEvent
from shared.text.utf8 import Utf8Stream

_SPACE: Final = b" \t\r\n"


class ChannelOutput:
    """`kind` is the event that carries this channel's text; `text` is everything sent so far."""

    def __init__(
        self,
        kind: type[ThinkingDelta] | type[TextDelta],
        emit: Callable[[TurnEvent], None],
        hold_space: bool,
    ) -> None:
        self._kind = kind
        self._emit = emit
        self._hold_space = hold_space
        self._space = bytearray()
        self._utf8 = Utf8Stream()
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def write(self, data: bytes) -> None:
        if not self._hold_space:
            self._send(self._utf8.feed(data))
            return
        body = data.rstrip(_SPACE)
        if body:
            self._send(self._utf8.feed(bytes(self._space) + body))
            self._space.clear()
        self._space += data[len(body) :]

    def drop_space(self) -> bytes:
        """Forget the white space at the end and return it: a block follows."""
        space = bytes(self._space)
        self._space.clear()
        return space

    def flush(self) -> None:
        """The channel ends."""
        self._send(self._utf8.feed(bytes(self._space)) + self._utf8.flush())
        self._space.clear()

    def _send(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._emit(self._kind(text))
