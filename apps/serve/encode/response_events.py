"""The events that one output item of a streamed response goes through. Spec: chat §5.6.

Owns their names, their order and their numbers. Knows no turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from apps.serve.encode.json_string import MemberText
from apps.serve.encode.response_items import (
    CallItem,
    ItemStatus,
    free_text,
    message_item,
    reasoning_item,
    summary_part,
    text_part,
)
from apps.serve.sse import frame


class EventFrames:
    """Frames that have not gone out yet. Every event has the number that follows the one before."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._number = 0

    def add(self, kind: str, **members: Any) -> None:
        body = {"type": kind, "sequence_number": self._number, **members}
        self._frames.append(frame(body, event=kind))
        self._number += 1

    def take(self) -> bytes:
        """All frames since the last time."""
        frames = b"".join(self._frames)
        self._frames.clear()
        return frames


@dataclass(frozen=True, slots=True)
class TextForm:
    """How an item that holds one text is written: its id's prefix, and its parts' and events' names."""

    prefix: str
    item: Callable[[str, str | None, ItemStatus], dict[str, Any]]
    part: Callable[[str], dict[str, Any]]
    part_event: str
    text_event: str
    position: dict[str, int]
    with_text: dict[str, Any]


REASONING: Final = TextForm(
    "rs_",
    reasoning_item,
    summary_part,
    "response.reasoning_summary_part",
    "response.reasoning_summary_text",
    {"summary_index": 0},
    {},
)
MESSAGE: Final = TextForm(
    "msg_",
    message_item,
    text_part,
    "response.content_part",
    "response.output_text",
    {"content_index": 0},
    {"logprobs": []},
)


class TextItemStream:
    """An item that holds one text."""

    def __init__(self, form: TextForm, item_id: str, index: int, events: EventFrames) -> None:
        self.form = form
        self._id = item_id
        self._index = index
        self._events = events
        self._pieces: list[str] = []
        events.add(
            "response.output_item.added", output_index=index, item=form.item(item_id, None, "in_progress")
        )
        self._add(f"{form.part_event}.added", part=form.part(""))

    def more(self, text: str) -> None:
        self._pieces.append(text)
        self._add(f"{self.form.text_event}.delta", delta=text, **self.form.with_text)

    def end(self, status: ItemStatus) -> dict[str, Any]:
        """The whole item."""
        text = "".join(self._pieces)
        item = self.form.item(self._id, text, status)
        self._add(f"{self.form.text_event}.done", text=text, **self.form.with_text)
        self._add(f"{self.form.part_event}.done", part=self.form.part(text))
        self._events.add("response.output_item.done", output_index=self._index, item=item)
        return item

    def _add(self, kind: str, **members: Any) -> None:
        self._events.add(kind, item_id=self._id, output_index=self._index, **self.form.position, **members)


class CallStream:
    """A call that is being written. Only kinds whose argument is a text show it before it is whole."""

    def __init__(self, item: CallItem, index: int, events: EventFrames) -> None:
        self._item = item
        self._index = index
        self._events = events
        self._arguments: list[str] = []
        self._input = MemberText("input")
        events.add("response.output_item.added", output_index=index, item=item.body(None, "in_progress"))

    def more(self, fragment: str) -> None:
        """More of the arguments, JSON text."""
        self._arguments.append(fragment)
        if self._item.wire.kind == "function":
            self._add("response.function_call_arguments.delta", delta=fragment)
        elif self._item.wire.kind == "custom" and (text := self._input.feed(fragment)):
            self._add("response.custom_tool_call_input.delta", delta=text)

    def end(self) -> dict[str, Any]:
        """The whole item."""
        arguments = "".join(self._arguments)
        if self._item.wire.kind == "function":
            done = {**self._item.named, "arguments": arguments}
            self._add("response.function_call_arguments.done", **done)
        elif self._item.wire.kind == "custom":
            self._add("response.custom_tool_call_input.done", input=free_text(arguments))
        item = self._item.body(arguments, "completed")
        self._events.add("response.output_item.done", output_index=self._index, item=item)
        return item

    def _add(self, kind: str, **members: Any) -> None:
        self._events.add(kind, item_id=self._item.id, output_index=self._index, **members)
