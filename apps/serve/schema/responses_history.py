"""The items of a responses input as the history that the template renders. Spec: chat §5.4. Knows no body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apps.serve.schema.response_items import AnyItem, CallItem, MessageItem, ReasoningItem, ResultItem
from shared.text.messages import Message, ToolCall


def responses_history(items: Sequence[AnyItem]) -> list[Message]:
    """Reasoning goes to the answer that follows it, calls to the answer that they directly follow."""
    history = _History()
    for item in items:
        match item:
            case ReasoningItem():
                history.think(item.text)
            case MessageItem(role="assistant"):
                history.answer("".join(item.content))
            case MessageItem():
                history.add(Message(item.role, "".join(item.content)))
            case CallItem():
                history.call(ToolCall(item.called, item.tool, item.arguments_text))
            case ResultItem():
                history.add(Message("tool", item.text, tool_call_ids=(item.called,)))
            case _:
                pass  # bookkeeping: it is as if it were not there
    history.close()
    return history.messages


class _History:
    """The messages so far, and reasoning that has found no answer yet."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._reasoning: list[str] = []

    def think(self, text: str) -> None:
        if text:
            self._reasoning.append(text)

    def answer(self, content: str) -> None:
        self.messages.append(Message("assistant", content, reasoning=self._thought()))

    def call(self, call: ToolCall) -> None:
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant":
            self.messages.append(Message("assistant", "", reasoning=self._thought(), tool_calls=(call,)))
            return
        reasoning = "\n".join(part for part in (last.reasoning, self._thought()) if part)
        self.messages[-1] = replace(last, reasoning=reasoning, tool_calls=(*last.tool_calls, call))

    def add(self, message: Message) -> None:
        """Something that is no part of an answer: reasoning before it was an answer of its own."""
        self.close()
        self.messages.append(message)

    def close(self) -> None:
        if self._reasoning:
            self.answer("")

    def _thought(self) -> str:
        text = "\n".join(self._reasoning)
        self._reasoning.clear()
        return text
