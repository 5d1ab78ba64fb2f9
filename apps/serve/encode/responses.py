"""Turn events as the event stream of a response. Spec: chat §5.6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apps.serve.encode.response_events import (
    MESSAGE,
    REASONING,
    CallStream,
    EventFrames,
    TextForm,
    TextItemStream,
)
from apps.serve.encode.response_items import CallItem, ItemStatus, NewId, random_id
from apps.serve.encode.response_object import ResponseHead, status_of
from apps.serve.errors import Failure
from apps.serve.jobs import Finished, PrefillDone
from apps.serve.schema.responses_tools import WireTool
from apps.serve.sse import comment
from shared.text.events import (
    TextDelta,
    ThinkingDelta,
    ToolArguments,
    ToolEnd,
    ToolLost,
    ToolStart,
    TurnEvent,
)


class ResponseStream:
    """`StreamEncoder` of one streamed response: its items follow one another and never overlap.

    `wires` are the tools as the client knows them. A call that is lost in its middle stays open for ever: no
    client runs it, and the response that ends the stream does not have it.
    """

    def __init__(
        self,
        head: ResponseHead,
        wires: Mapping[str, WireTool],
        *,
        shows_reasoning: bool,
        new_id: NewId = random_id,
    ) -> None:
        self._head = head
        self._wires = wires
        self._shows_reasoning = shows_reasoning
        self._new_id = new_id
        self._events = EventFrames()
        self._begun = False
        self._items = 0
        self._text: TextItemStream | None = None
        self._call: CallStream | None = None
        self._output: list[dict[str, Any]] = []

    def prefilled(self, done: PrefillDone) -> bytes:
        self._begin()
        return self._events.take()

    def waiting(self) -> bytes:
        self._begin()
        return self._events.take() or comment("prefill")

    def held(self) -> bytes:
        return comment("working")

    def emitted(self, events: Sequence[TurnEvent]) -> bytes:
        for event in events:
            self._take(event)
        return self._events.take()

    def finished(self, finished: Finished) -> bytes:
        self._begin()
        if self._text is not None:
            thinking = self._text.form is REASONING
            whole = finished.thinking_closed if thinking else finished.finish_reason != "length"
            self._close_text("completed" if whole else "incomplete")
        response = self._head.finished(self._output, finished)
        self._events.add(f"response.{status_of(finished)}", response=response)
        return self._events.take()

    def failed(self, failure: Failure) -> bytes:
        self._begin()
        self._close_text("incomplete")
        self._events.add("response.failed", response=self._head.failed(self._output, failure))
        return self._events.take()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            for event in ("response.created", "response.in_progress"):
                self._events.add(event, response=self._head.body("in_progress", ()))

    def _take(self, event: TurnEvent) -> None:
        match event:
            case ThinkingDelta(text):
                if self._shows_reasoning:
                    self._more(REASONING, text)
            case TextDelta(text):
                # What a first item sets apart by blank lines begins a second one.
                begins = self._text is None and bool(self._items)
                self._more(MESSAGE, text.lstrip("\n") if begins else text)
            case ToolStart(_, call_id, name):
                self._close_text("completed")
                item = CallItem.of(call_id, name, self._wires, self._new_id)
                self._call = CallStream(item, self._next_index(), self._events)
            case ToolArguments(_, fragment):
                if self._call is not None:
                    self._call.more(fragment)
            case ToolEnd():
                if self._call is not None:
                    self._output.append(self._call.end())
                    self._call = None
            case ToolLost():
                self._call = None
            case _:
                pass  # has no form here

    def _more(self, form: TextForm, text: str) -> None:
        if self._text is None or self._text.form is not form:
            self._close_text("completed")
            if not text:
                return
            self._text = TextItemStream(form, self._new_id(form.prefix), self._next_index(), self._events)
        self._text.more(text)

    def _close_text(self, status: ItemStatus) -> None:
        if self._text is not None:
            self._output.append(self._text.end(status))
            self._text = None

    def _next_index(self) -> int:
        self._items += 1
        return self._items - 1
